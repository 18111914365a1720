"""The benchmarks of checkpoints run, in parts and as a whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx.bench.checkpoint import resiliency, saving
from phalanx.bench.checkpoint.drill import is_ending

ROOT = Path(__file__).parents[2]


def script(folder: Path, *parts: str) -> tuple[dict[str, Any], str]:
    """The rows of `benchmarks/checkpoint_h200.py`, run small, by name; and what it printed."""
    rows = folder / "rows.jsonl"
    command = [sys.executable, str(ROOT / "benchmarks" / "checkpoint_h200.py"), "--tiny", "--only", *parts]
    command += ["--folder", str(folder / "disk"), "--out", str(rows)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    printed = subprocess.run(command, env=environment, text=True, check=True, stdout=subprocess.PIPE).stdout
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    return {row["name"]: row["value"] for row in found}, printed


def test_a_rank_that_was_killed_is_seen_to_be_ending_before_it_is_buried() -> None:
    with subprocess.Popen(["sleep", "600"]) as rank:
        assert not is_ending(rank.pid)
        rank.kill()
        os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)
        assert is_ending(rank.pid)
    assert rank.returncode == -signal.SIGKILL


def test_saving_has_a_row_for_the_time_beyond_the_copy_and_one_for_the_load() -> None:
    names = [row["name"] for row in saving.run(saving.QUICK, lambda line: None)]
    assert "save of 32 tensors: time of the training thread beyond the copy" in names
    assert "load of 32 tensors from host memory" in names


def test_without_lm_resiliency_ours_stands_alone_and_it_is_said_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resiliency, "MODULE", "a_module_that_nobody_has")
    monkeypatch.setattr(resiliency, "WAYS", ("phalanx", "lm-resiliency"))
    told: list[str] = []
    rows = {row["name"]: row["value"] for row in resiliency.run(resiliency.QUICK, told.append)}
    assert rows["phalanx: steps lost to kill -9"] == 0
    assert not any(name.startswith("lm-") for name in rows)
    assert "uv pip install --no-deps lm-resiliency" in told[0]


def test_the_durable_part_of_the_script_runs_by_itself(tmp_path: Path) -> None:
    rows, printed = script(tmp_path, "durable")
    assert "Traceback" not in printed
    assert rows["phalanx to disk: interval it sustains"] > 0
