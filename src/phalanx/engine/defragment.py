"""Defragmentation: where a site wants it, running jobs are moved now and then so that somebody who waits has a place.

It is due at most once in a period, and only while somebody waits for GPUs that are free but do not lie together. Of
those the first in the order for whom it is worth it gets its place; everybody who moves lands at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.engine.moves import Moving
from phalanx.engine.records import AttemptRecord, JobRecord
from phalanx.engine.state import State
from phalanx.engine.trial import Trial
from phalanx.engine.way import Context
from phalanx.placement.gang import GangTrial
from phalanx.policy.policy import always
from phalanx.protocol.reason import Reason

SCATTERED = (Reason.FRAGMENTED, Reason.TOPOLOGY)

TRIED_MAX = 32
"""Waiting jobs looked at when it is due: a bound on work."""


def expect(state: State) -> None:
    """Has it be due at the next full period, if somebody waits whom it could help."""
    period_ms = state.cluster.defragment_ms
    if period_ms and not state.defragments_at_ms and any(_scattered(state)):
        state.defragments_at_ms = (state.now // period_ms + 1) * period_ms
        state.set_timer(state.defragments_at_ms, "defragment", "")


def waiting(state: State) -> list[JobRecord]:
    """Those whom it may help, the first in the order first. Where nobody may pass the head, that is the head."""
    found = sorted(_scattered(state), key=state.key)
    if state.policy.backfill is not always:
        found = [record for record in found if record.job.id == state.head]
    return found[:TRIED_MAX]


def _scattered(state: State) -> Iterator[JobRecord]:
    return (
        state.jobs[kind.jobs[0][1]]
        for kind in state.classes.values()
        if kind.verdict in SCATTERED and state.jobs[kind.jobs[0][1]].gpus_min <= state.capacity.free_total
    )


class Defragmenting(Moving):
    """Anybody who may be moved goes, whatever the policy, if that costs less than who waits gains.

    It gains its GPUs for one period at least: it would not have been looked at before the next.
    """

    def __init__(self, trial: Trial, head: JobRecord, context: Context) -> None:
        super().__init__(trial, head, context)
        self.worth_gpu_ms = head.gpus_min * self.state.cluster.defragment_ms

    def group_goes(self, attempt: AttemptRecord) -> bool:
        """Anybody's."""
        return True

    def seat(self, victims: list[AttemptRecord]) -> GangTrial | None:
        """Not if they lose more than it is worth."""
        if sum(victim.lost_gpu_ms(self.context.now) for victim in victims) > self.worth_gpu_ms:
            return None
        return super().seat(victims)
