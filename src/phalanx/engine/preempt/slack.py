"""Slack: which of its victims a head can do without, as far as quotas tell.

A queue gives back what it borrows only to one that is within its nominal quota where both lie side by side. What
victims further in leave may be what brings it there: without one of them those further out could not be preempted.
"""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.engine.state.records import AttemptRecord, JobRecord, usage_of
from phalanx.engine.state.state import State


class Slack:
    """That of victims that may all be preempted for a head, as queues are before. It shrinks as victims are dropped.

    By level of the head's queue, the whole first: what the victims inside leave beyond what the head needs there, by
    resource, and how many are preempted only since they lie beside that level.
    """

    def __init__(self, state: State, head: JobRecord, victims: Iterable[AttemptRecord]) -> None:
        self._accounts = state.quotas.accounts
        self._trail = self._accounts[head.job.queue].trail if self._accounts else ()
        self._left = [
            {i: each.deserved[i] - each.used[i] - head.need[i] for i in each.lendable if head.need[i]}
            for each in self._trail
        ]
        self._beside = [0] * (len(self._trail) + 1)
        for victim in victims if self._trail else ():
            self._count(victim, 1)

    def may_drop(self, victim: AttemptRecord) -> bool:
        """Whether all others may still be preempted without a victim."""
        if not self._trail:
            return True
        usage = usage_of(victim.staying)
        return not any(
            self._beside[level] and any(left < usage[i] for i, left in self._left[level].items())
            for level in range(1, self._nearness(victim))
        )

    def drop(self, victim: AttemptRecord) -> None:
        """Takes note that a victim is not preempted."""
        if self._trail:
            self._count(victim, -1)

    def _count(self, victim: AttemptRecord, sign: int) -> None:
        usage, nearness = usage_of(victim.staying), self._nearness(victim)
        self._beside[nearness] += sign
        for left in self._left[1:nearness]:
            for i in left:
                left[i] += sign * usage[i]

    def _nearness(self, victim: AttemptRecord) -> int:
        """How many queues hold both the victim and the head: it lies beside the next further in, if there is one."""
        found = 0
        for mine, theirs in zip(self._trail, self._accounts[victim.job.queue].trail, strict=False):
            if mine is not theirs:
                break
            found += 1
        return found


def tells_all(state: State, head: JobRecord, victims: Iterable[AttemptRecord]) -> bool:
    """Whether slack is all that quotas and policy say of victims: each may go, or not, whatever else is preempted.

    Not where the policy has a rule of its own for that, or where a queue borrows one resource and not another: it may
    then depend on what of these the head lacks.
    """
    if not state.quotas:
        return not state.policy.victims_vary
    if state.policy.victims_vary or state.policy.has_reclaims:
        return False
    accounts, own = state.quotas.accounts, head.job.queue
    others = dict.fromkeys(victim.job.queue for victim in victims if victim.job.queue != own)
    return all(len(each.lendable) <= 1 for other in others for each in accounts[other].trail[1:])
