"""Excess: what queues have beyond what the policy lets them keep."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.engine.quota.account import GPUS
from phalanx.engine.state.records import AttemptRecord, JobRecord
from phalanx.engine.state.state import State
from phalanx.policy.policy import nothing_kept


class Excess:
    """What queues have beyond what the policy lets them keep, as one after the other gives of it to another queue."""

    def __init__(self, state: State, head: JobRecord) -> None:
        self.state = state
        self._head = head
        self._own = head.job.queue
        self._left: dict[str, int] = {}

    def give(self, queue: str, gpu_permille: int) -> bool:
        """Takes so much of a queue, if it has that to give.

        Where the cluster describes queues the last that is taken may go beyond that: jobs cannot be divided. One larger
        than what its queue keeps would keep queues from their nominal quota for as long as it runs. Two jobs do not
        stop one another in turn by that, since a job that has made way for another never stops it there.
        """
        keeps = self.state.policy.keeps
        if keeps is nothing_kept or queue == self._own:
            return True
        if queue not in self._left:
            self._left[queue] = self.state.usage(queue).gpu_permille - keeps(queue, self.state)
        if self._left[queue] < (1 if self.state.quotas else gpu_permille) and not self._borrows_what_is_short(queue):
            return False
        self._left[queue] -= gpu_permille
        return True

    def _borrows_what_is_short(self, queue: str) -> bool:
        """Whether the head is short of other quota than of GPUs, and a queue borrows of it.

        What a queue keeps is counted in GPUs. It would keep the CPUs that it has borrowed with them.
        """
        short = self.state.shortfall(self._head) if self.state.quotas else None
        if short is None or short.resource == GPUS:
            return False
        account = self.state.quotas.accounts[queue]
        return account.used[short.resource] > account.deserved[short.resource]

    def of(self, victims: Iterable[AttemptRecord]) -> list[AttemptRecord]:
        """As many of the victims, the first first, as their queues can give."""
        return [victim for victim in victims if self.give(victim.job.queue, victim.gpu_permille)]

    def gives_all(self, victims: Iterable[AttemptRecord]) -> bool:
        """Whether their queues can give all of the victims: the smallest first, so that none goes needlessly far."""
        smallest_first = sorted(victims, key=lambda victim: victim.gpu_permille)
        return len(self.of(smallest_first)) == len(smallest_first)
