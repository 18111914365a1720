"""Own victims: whether jobs of its own queue might leave for a pending job that has no quota.

It is asked of every class of every queue. What is told holds for a whole decision, since an attempt that is stopped
meanwhile still counts: a class is tried in vain then, and no class is passed over that could be placed.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.engine.state.records import AttemptRecord, JobRecord, PreemptionGroup
from phalanx.engine.state.state import State
from phalanx.engine.state.yielding import may_yield
from phalanx.policy.policy import Key, Targets


class OwnVictims:
    """Those of each queue: under a running order the last of its attempts counts, else what the policy says."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._keeps = state.policy.targets is Targets.KEEP
        self._last: dict[str, Key | None] = {}
        self._leaves: dict[PreemptionGroup, bool] = {}

    def may_leave_for(self, record: JobRecord) -> bool:
        """Whether any attempt of a job's own queue might leave for it."""
        if not self._keeps:
            last = self._last_of(record.job.queue)
            return last is not None and last > self.state.rank(record)
        if not self.state.policy.has_victims:
            return False
        group = self.state.preemption_group(record.job)
        if group not in self._leaves:
            self._leaves[group] = self._any_leaves(record)
        return self._leaves[group]

    def _last_of(self, queue: str) -> Key | None:
        """The key of the attempt of a queue that is last in the running order; None without one."""
        if queue not in self._last:
            state = self.state
            keys = (state.order(state.jobs[attempt.job.id]) for attempt in self._attempts(queue))
            self._last[queue] = max(keys, default=None)
        return self._last[queue]

    def _any_leaves(self, record: JobRecord) -> bool:
        return any(may_yield(self.state, record, attempt) for attempt in self._attempts(record.job.queue))

    def _attempts(self, queue: str) -> Iterator[AttemptRecord]:
        for group in self.state.preemptible_gpus.groups.get(queue, ()):
            yield from self.state.runs[group].values()
