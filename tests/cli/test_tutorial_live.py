"""The tutorial's commands work as written, in order, on a real server."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from live import Phalanx

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-jobs.md"


def test_the_first_jobs_run_as_the_tutorial_says(phalanx: Phalanx) -> None:
    commands = re.findall(r"^\$ phalanx (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(commands) >= 14
    for command in commands:
        result = phalanx(*shlex.split(command))
        assert result.code == 0, f"{command}: {result.err}"


def test_every_page_the_tutorial_points_to_exists() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", PAGE.read_text("utf-8")):
        assert (PAGE.parent / target).exists(), target
