"""Snapshots: a State as bytes and back, and nothing else."""

from __future__ import annotations

import pickle
import zlib

import pytest

from builders import World, a_job, everything, random_run
from phalanx.cluster.cluster import flat
from phalanx.engine.fold import snapshot
from phalanx.engine.fold.snapshot import SnapshotError, dump, load
from phalanx.engine.turn import turn
from phalanx.protocol.action import ActionId
from phalanx.protocol.cells_steps import Left
from phalanx.protocol.event import SuspendRates
from phalanx.protocol.reason import Reason


@pytest.mark.parametrize("policy", ["fifo", "priority", "srtf"])
def test_a_state_that_was_written_is_read_back_and_decides_the_same(policy: str) -> None:
    run = random_run(7, 60, policy)
    copy = load(dump(run.state))
    assert everything(copy) == everything(run.state)
    now = run.state.now + 60_000
    assert turn(copy, type(run.journal)(run.journal.records), (), now) == turn(run.state, run.journal, (), now)


def test_a_snapshot_cannot_run_code() -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (print, ("taken over",))

    header = dump(random_run(1, 3).state).partition(b"\n")[0]
    with pytest.raises(SnapshotError, match=r"builtins\.print"):
        load(header + b"\n" + zlib.compress(pickle.dumps(Evil())))


@pytest.mark.parametrize("content", [b"", b"phalanx snapshot", b"phalanx snapshot 1 x 0\n", b"\x00" * 100])
def test_bytes_that_are_no_snapshot_are_refused(content: bytes) -> None:
    with pytest.raises(SnapshotError):
        load(content)


def test_a_torn_snapshot_is_refused() -> None:
    content = dump(random_run(1, 3).state)
    for end in range(0, len(content), 97):
        with pytest.raises(SnapshotError):
            load(content[:end])


def test_a_snapshot_of_a_release_with_other_fields_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = dump(random_run(1, 3).state)
    monkeypatch.setattr(snapshot, "form", lambda: "another")
    with pytest.raises(SnapshotError, match="another release"):
        load(content)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"cphalanx.engine.plan\nReason\n(Vquota\ntR.", Reason.QUOTA),
        (b"cphalanx.engine.action\nActionId\n(I1\nVa\nI2\nI3\ntR.", ActionId(1, "a", 2, 3)),
        (b"cphalanx.engine.event\nSuspendRates\n(I1\nI2\ntR.", SuspendRates(1, 2)),
        (b"cphalanx.engine.cells_steps\nLeft\n(Va/1\ntR.", Left("a/1")),
    ],
)
def test_snapshots_name_classes_where_older_releases_had_them(content: bytes, expected: object) -> None:
    assert snapshot.read(content, type(expected)) == expected


def test_what_many_jobs_have_alike_is_written_once_and_is_one_object_afterwards() -> None:
    world = World(flat(1, 8))
    world.submit(*(a_job(str(number), 1) for number in range(50)))
    state = load(dump(world.state))
    assert everything(state) == everything(world.state)
    first, last = state.jobs["0"], state.jobs["49"]
    assert first.job is not last.job
    assert first.job.gang is last.job.gang
    assert first.tasks is last.tasks
    assert first.marks is not last.marks, "what changes is not shared"
