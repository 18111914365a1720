"""A Python that jobs can run: under a server that is root they are other users, who may not reach that of the tests."""

from __future__ import annotations

import sys
from pathlib import Path


def is_for_all(program: str) -> bool:
    """Whether every user may go to where a program, and what it links to, is."""
    path = Path(program)
    return all(folder.stat().st_mode & 0o001 for place in (path, path.resolve()) for folder in place.parents)


JOB_PYTHON = next(program for program in (sys.executable, "/usr/bin/python3") if is_for_all(program))
