"""Holds: what is left of a queue's limit is kept for who has waited longer than it should, and needs more than that.

Else a stream of smaller jobs behind it would take each bit as it comes, and the one who goes first would never go.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.queues import ancestors
from phalanx.engine.quotas import EVERY, Shortfall
from phalanx.engine.records import JobRecord
from phalanx.engine.state import OVERDUE, State
from phalanx.engine.trial import Trial
from phalanx.policy.view import Usage


class Holds:
    """The holds of one decision: each begins once those who go before its job have had their turn."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.state = trial.state
        self._to_come = list(overdue(self.state))
        self._kept: dict[tuple[str, int], int] = {}

    def keep_from(self, record: JobRecord | None) -> None:
        """Has those hold what they wait for who go before a job; all of them, if it is None."""
        key = self.state.key
        while self._to_come and (record is None or key(self._to_come[0]) < key(record)):
            self._keep(self._to_come.pop(0))

    def _keep(self, record: JobRecord) -> None:
        short = self.state.shortfall(record)
        if short is None or not short.by_limit or short.left <= 0:
            return
        left = Usage(*(short.left if resource == short.resource else 0 for resource in EVERY))
        self.trial.keep_quota(record.job.queue, left)
        for path in filter(None, ancestors(record.job.queue)):
            self._kept[path, short.resource] = self._kept.get((path, short.resource), 0) + short.left

    def stand_in_the_way(self, short: Shortfall) -> bool:
        """Whether a job could have what it may not, were nothing kept for others."""
        return short.by_limit and short.left + self._kept.get((short.at, short.resource), 0) >= short.asked


def overdue(state: State) -> Iterator[JobRecord]:
    """Who waits longer than it should and is short of a limit, the first first."""
    if not state.waits_are_limited or not state.quotas:
        return
    late = sorted(entry for waiting in state.classes.values() for entry in waiting.jobs if entry[0][0] == OVERDUE)
    yield from (state.jobs[job] for _, job in late)


def kept_for(state: State, record: JobRecord) -> list[tuple[JobRecord, str]]:
    """For whom something of a limit is kept that a job would draw on, too, and of which queue's."""
    limits = tuple(ancestors(record.job.queue))
    found = []
    for late in overdue(state):
        short = state.shortfall(late)
        if late is not record and short is not None and short.by_limit and short.at in limits:
            found.append((late, short.at))
    return found
