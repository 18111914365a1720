"""`phalanx bench checkpoint --only reshard`: small, it meets what does not depend on the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.cli.main import cli, run

pytestmark = pytest.mark.needs("torch")

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "benchmarks.md"


def test_planning_a_load_reads_each_byte_once_and_spreads_the_reading(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, ["bench", "checkpoint", "--only", "reshard", "--quick", "-o", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["bytes read by all ranks / bytes stored"]["value"] == 1.0
    assert rows["bytes read by the busiest rank / by the mean"]["value"] < 1.5
    page = PAGE.read_text("utf-8")
    assert [name for name in rows if "/" in name and "shards" not in name and f"`{name}`" not in page] == []
