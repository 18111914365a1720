"""What members leave on a node goes with them, and what earlier nodes left goes after a day."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.ray.node.tidy import OLD_S, remove_empty, remove_old

NOW_S = 2_000_000_000.0


def attempt(scratch: Path, node: str, age_s: float) -> Path:
    """The folder of an attempt that nothing has changed for so long."""
    folder = scratch / node / "site" / "a" / "1"
    folder.mkdir(parents=True)
    (folder / "order.json").write_text("{}")
    os.close(AttemptFolder(str(folder)).lock() or 0)
    for path in (folder, *folder.parents[:3]):
        os.utime(path, (NOW_S - age_s, NOW_S - age_s))
    return folder


def test_what_an_earlier_node_left_a_day_ago_is_removed_and_nothing_else(tmp_path: Path) -> None:
    old, recent = attempt(tmp_path, "old", OLD_S + 1), attempt(tmp_path, "recent", OLD_S - 1)
    own = attempt(tmp_path, "own", OLD_S + 1)
    (tmp_path / "code.zip").write_text("code")
    remove_old(str(tmp_path), "own", NOW_S)
    assert not old.parents[2].exists()
    assert recent.exists()
    assert own.exists()
    assert (tmp_path / "code.zip").exists()


def test_an_attempt_that_still_runs_is_kept_however_old_it_is(tmp_path: Path) -> None:
    folder = attempt(tmp_path, "old", OLD_S + 1)
    lock = AttemptFolder(str(folder)).lock()
    assert lock is not None
    remove_old(str(tmp_path), "own", NOW_S)
    assert folder.exists()
    os.close(lock)


@pytest.mark.parametrize(("other", "left"), [("", False), ("b", True)])
def test_folders_go_with_the_last_member_in_them(tmp_path: Path, other: str, left: bool) -> None:
    (tmp_path / "site" / "a").mkdir(parents=True)
    (tmp_path / "site" / other).mkdir(exist_ok=True)
    remove_empty(str(tmp_path / "site" / "a"), str(tmp_path))
    assert (tmp_path / "site").exists() is left
    assert tmp_path.exists()
