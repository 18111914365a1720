"""How sources and tests lie in their folders."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import phalanx

LINES_MAX, MODULES_MAX = 500, 20
ONE_A_FILE = ("cli", "policy")
"""Folders with a verb, or a policy, a file: they grow with what there is to choose from."""

SOURCES = Path(phalanx.__file__).parent


def test_no_two_test_files_have_one_name() -> None:
    """Pytest imports them by name alone, and of two with one name the second is an error only in a whole run."""
    names = Counter(path.name for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_module_is_longer_than_a_reader_follows() -> None:
    long = {
        str(path.relative_to(SOURCES)): lines for path in SOURCES.rglob("*.py") if (lines := _lines(path)) > LINES_MAX
    }
    assert long == {}


def test_no_folder_has_more_modules_side_by_side_than_a_reader_sees_at_a_glance() -> None:
    modules = Counter(
        str(path.parent.relative_to(SOURCES)) for path in SOURCES.rglob("*.py") if path.stem != "__init__"
    )
    assert {
        folder: count for folder, count in modules.items() if count > MODULES_MAX and folder not in ONE_A_FILE
    } == {}


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())
