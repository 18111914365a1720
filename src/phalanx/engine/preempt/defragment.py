"""Defragmentation: where a site wants it, running jobs are moved now and then so that a pending job has a place.

It is due at most once in a period, and only while a job is pending for GPUs that are free but do not lie together. Of
such jobs the first in the order for which it is worth it gets its place; every job that moves lands at once.
"""

from __future__ import annotations

from phalanx.engine.preempt.moves import Moving
from phalanx.engine.preempt.way import Context
from phalanx.engine.state.records import AttemptRecord, JobRecord
from phalanx.engine.transaction.transaction import Transaction
from phalanx.placement.gang import GangTrial


class Defragmenting(Moving):
    """Any attempt that may be moved goes, whatever the policy, if that costs less than the pending job gains.

    It gains its GPUs for one period at least: it would not have been looked at before the next.
    """

    def __init__(self, transaction: Transaction, head: JobRecord, context: Context) -> None:
        super().__init__(transaction, head, context)
        self.worth_gpu_ms = head.gpus_min * self.state.cluster.defragment_ms

    def group_goes(self, attempt: AttemptRecord) -> bool:
        """Attempts of any group."""
        return True

    def seat(self, victims: list[AttemptRecord]) -> GangTrial | None:
        """Not if they lose more than it is worth."""
        if sum(victim.lost_gpu_ms(self.context.now) for victim in victims) > self.worth_gpu_ms:
            return None
        return super().seat(victims)
