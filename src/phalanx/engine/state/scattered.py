"""Pending jobs that lack no GPUs, only free GPUs that lie together."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.state import State
from phalanx.protocol.reason import Reason

SCATTERED = (Reason.FRAGMENTED, Reason.TOPOLOGY)

TRIED_MAX = 32
"""Jobs looked at when a defragmentation is due: a bound on work."""


def first_scattered(state: State) -> list[JobRecord]:
    """Pending jobs that a defragmentation may help, in order. Where no job may pass the head, that is the head."""
    found = sorted(scattered(state), key=state.key)
    if not state.policy.lets_all_pass:
        found = [record for record in found if record.job.id == state.head]
    return found[:TRIED_MAX]


def scattered(state: State) -> Iterator[JobRecord]:
    """The first of each class that has too few GPUs together, though enough are free."""
    return (
        state.jobs[kind.jobs[0][1]]
        for kind in state.classes.values()
        if kind.verdict in SCATTERED and state.jobs[kind.jobs[0][1]].gpus_min <= state.capacity.free_total
    )


def expect_defragmentation(state: State) -> None:
    """Has running jobs be moved at the next full period that a site sets, if any pending job could be helped by it."""
    period_ms = state.cluster.defragment_ms
    if period_ms and not state.defragments_at_ms and any(scattered(state)):
        state.defragments_at_ms = (state.now // period_ms + 1) * period_ms
        state.set_timer(state.defragments_at_ms, "defragment", "")
