"""Tests of real processes that failed beside others are run once more, alone; all others fail at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "run_again.py"
FAILS_ONCE = """
from pathlib import Path

def test_fails_once():
    seen = Path(__file__).with_suffix(".seen")
    was_there = seen.exists()
    seen.touch()
    assert was_there
"""
FAILS_ALWAYS = "def test_fails_always():\n    assert False\n"


def run_twice(folder: Path, tests: dict[str, str]) -> subprocess.CompletedProcess[str]:
    for name, text in tests.items():
        path = folder / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    cache = folder / "cache"
    first = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={cache}", "tests"]
    assert subprocess.run(first, cwd=folder, capture_output=True).returncode == 1
    return subprocess.run([sys.executable, SCRIPT, cache], cwd=folder, capture_output=True, text=True)


def test_one_of_real_processes_that_passes_alone_is_named(tmp_path: Path) -> None:
    done = run_twice(tmp_path, {"server/test_once.py": FAILS_ONCE})
    assert done.returncode == 0, done.stdout
    assert "UNSTABLE, passed only when run again alone: tests/server/test_once.py::test_fails_once" in done.stdout


@pytest.mark.parametrize(
    "tests",
    [
        {"server/test_always.py": FAILS_ALWAYS},
        {"unit/test_once.py": FAILS_ONCE},
        {"unit/test_once.py": FAILS_ONCE, "server/test_twice.py": FAILS_ONCE},
        {f"server/test_{number}.py": FAILS_ONCE for number in range(4)},
    ],
    ids=["fails-again", "pure", "pure-beside-live", "too-many"],
)
def test_anything_else_is_a_failure(tmp_path: Path, tests: dict[str, str]) -> None:
    assert run_twice(tmp_path, tests).returncode == 1
