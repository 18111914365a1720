"""Need: what a pending job has to get from other queues, where jobs of its own queue can be preempted for it."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.engine.state.records import AttemptRecord, JobRecord, PreemptionGroup, usage_of
from phalanx.engine.state.state import State
from phalanx.engine.state.yielding import may_yield, yields
from phalanx.policy.policy import Key, Targets
from phalanx.policy.view import Usage

Attempts = dict[str, AttemptRecord]


def need_of_others(state: State, head: JobRecord) -> Usage:
    """What the head needs of other queues at least: its own has so much less as jobs in it are preempted."""
    return _beyond(head.need, _given_by_own(state, head))


def _given_by_own(state: State, head: JobRecord) -> Usage:
    """What jobs of its own queue can leave to the head."""
    given = [0] * len(head.need)
    for attempt in _preemptible_in_own_queue(state, head):
        given = [more + each for more, each in zip(given, usage_of(attempt.staying), strict=True)]
    return Usage(*given)


def _beyond(need: Usage, given: Usage) -> Usage:
    return Usage(*(max(more - less, 0) for more, less in zip(need, given, strict=True)))


def _preemptible_in_own_queue(state: State, head: JobRecord) -> Iterator[AttemptRecord]:
    """By the policy's victims all of a group or none; under a running order, those behind the head."""
    policy = state.policy
    if not state.quotas or (policy.targets is Targets.KEEP and not policy.has_victims):
        return
    for attempts in _groups_in(state, head.job.queue):
        if policy.targets is not Targets.KEEP:
            yield from (attempt for attempt in attempts.values() if yields(state, head, attempt))
        elif _may_all_yield(state, head, attempts):
            yield from attempts.values()


def _groups_in(state: State, queue: str) -> Iterator[Attempts]:
    for group in state.preemptible_gpus.groups.get(queue, ()):
        yield state.runs[group]


def _may_all_yield(state: State, head: JobRecord, attempts: Attempts) -> bool:
    """Whether the attempts of a group may be preempted: the policy is asked once for all of them."""
    return bool(attempts) and may_yield(state, head, next(iter(attempts.values())))


def may_get_quota(state: State, head: JobRecord) -> bool:
    """Whether a head that has no quota might have it once others are preempted. It has none if no job of its own queue
    may be preempted for it, and it may reclaim nothing, neither by quotas nor by a rule of the policy's own.
    """
    policy, quotas = state.policy, state.quotas
    if policy.targets is not Targets.KEEP or quotas.may_reclaim(head.job.queue, head.need):
        return True
    if quotas.deserves_more(head.job.queue, head.need) or (policy.has_reclaims and policy.may_reclaim(head, state)):
        return True
    return _may_own_yield(state, head)


def _may_own_yield(state: State, head: JobRecord) -> bool:
    """Whether any attempt of its own queue may be preempted for a head, by the policy's victims."""
    groups = _groups_in(state, head.job.queue) if state.policy.has_victims else ()
    return any(_may_all_yield(state, head, attempts) for attempts in groups)


class OwnVictims:
    """Whether jobs of its own queue might leave for a pending job that has no quota. It is asked of every class.

    What is told holds for a whole decision, since an attempt that is stopped meanwhile still counts: a class is tried
    in vain then, and no class is passed over that could be placed.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self._keeps = state.policy.targets is Targets.KEEP
        self._last: dict[str, Key | None] = {}
        self._leaves: dict[PreemptionGroup, bool] = {}
        self._given: dict[tuple[PreemptionGroup, str], Usage] = {}

    def may_leave_for(self, record: JobRecord) -> bool:
        """Whether any attempt of a job's own queue might leave for it: under a running order, the last of them."""
        if not self._keeps:
            last = self._last_of(record.job.queue)
            return last is not None and last > self.state.rank(record)
        group = self.state.preemption_group(record.job)
        if group not in self._leaves:
            self._leaves[group] = _may_own_yield(self.state, record)
        return self._leaves[group]

    def need_of_others(self, record: JobRecord) -> Usage:
        """What a pending job needs of other queues: by the policy's victims, the same is left to a preemption group."""
        if not self.may_leave_for(record):
            return record.need
        if not self._keeps or self.state.policy.victims_vary:
            return need_of_others(self.state, record)
        group = (self.state.preemption_group(record.job), record.job.queue)
        given = self._given.get(group)
        if given is None:
            given = self._given[group] = _given_by_own(self.state, record)
        return _beyond(record.need, given)

    def _last_of(self, queue: str) -> Key | None:
        """The key of the attempt of a queue that is last in the running order; None without one."""
        if queue not in self._last:
            state = self.state
            attempts = (attempt for group in _groups_in(state, queue) for attempt in group.values())
            keys = (state.order(state.jobs[attempt.job.id]) for attempt in attempts)
            self._last[queue] = max(keys, default=None)
        return self._last[queue]
