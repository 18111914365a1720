"""Need: what a pending job has to get from other queues, where jobs of its own queue can be preempted for it."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.engine.state.records import AttemptRecord, JobRecord, usage_of
from phalanx.engine.state.state import State
from phalanx.engine.state.yielding import may_yield, yields
from phalanx.policy.policy import Targets
from phalanx.policy.view import Usage


def need_of_others(state: State, head: JobRecord) -> Usage:
    """What the head needs of other queues at least: its own has so much less as jobs in it are preempted."""
    need = head.need
    for attempt in _preemptible_in_own_queue(state, head):
        if not any(need):
            break
        given = usage_of(attempt.staying)
        need = Usage(*(max(more - less, 0) for more, less in zip(need, given, strict=True)))
    return need


def _preemptible_in_own_queue(state: State, head: JobRecord) -> Iterator[AttemptRecord]:
    """By the policy's victims all of a group or none; under a running order, those behind the head."""
    policy = state.policy
    if not state.quotas or (policy.targets is Targets.KEEP and not policy.has_victims):
        return
    for group in state.preemptible_gpus.groups.get(head.job.queue, ()):
        attempts = state.runs[group]
        if policy.targets is not Targets.KEEP:
            yield from (attempt for attempt in attempts.values() if yields(state, head, attempt))
        elif attempts and may_yield(state, head, next(iter(attempts.values()))):
            yield from attempts.values()
