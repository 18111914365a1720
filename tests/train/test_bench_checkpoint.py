"""The benchmarks of checkpoints run, in parts and as a whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def test_the_durable_part_of_the_script_runs_by_itself(tmp_path: Path) -> None:
    rows, printed = script(tmp_path, "durable")
    assert "Traceback" not in printed
    assert rows["phalanx to disk: interval it sustains"] > 0
