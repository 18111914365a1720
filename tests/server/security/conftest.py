"""Lets the tests of this folder use the servers of the folder above."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for a server of one's own."""
    return tmp_path / "data"
