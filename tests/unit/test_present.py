"""The reason that holds now, whatever a decision said before."""

from __future__ import annotations

from dataclasses import replace

from builders import World, a_job
from phalanx.cluster.cluster import flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.turn import record
from phalanx.engine.why.change import ChangeKind
from phalanx.engine.why.present import Present, present, present_reason
from phalanx.engine.why.why import why
from phalanx.protocol.event import AttemptEnded, JobSubmitted, Outcome
from phalanx.protocol.reason import Reason

MINUTE_MS = 60_000


def test_who_would_fit_but_is_kept_back_for_another_is_told_so_whatever_it_was_told_before() -> None:
    world = World(flat(2, 4), "backfill")
    world.run(a_job("first", 4, duration_ms=2 * MINUTE_MS))
    world.submit(a_job("large", 4, 2, duration_ms=MINUTE_MS))
    world.submit(a_job("long", 4, duration_ms=3 * MINUTE_MS))
    world.state.classes[world.job("long").shape].verdict = Reason.GPUS
    assert present_reason(world.state, "long") is Reason.RESERVED


def test_who_has_had_no_turn_since_it_would_fit_is_not_told_what_it_lacked_before() -> None:
    world = World(flat(1, 4), "fair")
    world.run(a_job("first", 4))
    world.submit(a_job("next", 4))
    assert present_reason(world.state, "next") is Reason.GPUS
    record(world.state, world.journal, AttemptEnded("first", 1, Outcome.SUCCEEDED), world.now + 1)
    assert present_reason(world.state, "next") is Reason.UNDECIDED


def test_who_would_fit_beside_what_is_reserved_is_not_told_that_it_is_kept_back() -> None:
    """large has both nodes from 2 minutes on, when first has left, and short will have by then."""
    world = World(flat(2, 4), "backfill")
    world.run(a_job("first", 4, duration_ms=2 * MINUTE_MS))
    world.submit(a_job("large", 4, 2, duration_ms=MINUTE_MS))
    record(world.state, world.journal, JobSubmitted(a_job("short", 4, duration_ms=MINUTE_MS)), world.now + 1)
    world.state.classes[world.job("short").shape].verdict = Reason.GPUS
    assert present(world.state, "short") == Present(Reason.UNDECIDED)


def test_who_is_no_longer_short_of_quota_is_told_behind_whom_it_stands() -> None:
    """Under strict fifo nobody behind the head is looked at again, so that what was said of a2 is over."""
    world = World(replace(flat(1, 4), queues=(Queue("a", limit=Quota(1_000)), Queue("b"))), "fifo")
    world.run(a_job("a1", queue="a"), a_job("b1", 2, queue="b"))
    world.submit(a_job("head", 4, queue="b", begin_ms=MINUTE_MS), a_job("a2", queue="a"))
    assert present_reason(world.state, "a2") is Reason.QUOTA
    world.turn(after_ms=MINUTE_MS)
    world.end("a1")
    found = why(world.state, "a2")
    assert found.reason is Reason.BEHIND
    assert found.behind is not None
    assert found.behind.job == "head"
    assert [change.kind for change in found.changes] == [ChangeKind.PASS]
