"""Wants: what the jobs of each queue ask for, waiting and running together, as it is known from events alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from phalanx.cluster.queues import ancestors
from phalanx.placement.sharing import share_permille
from phalanx.policy.policy import Memory
from phalanx.policy.view import Usage
from phalanx.protocol.event import AttemptEnded, Event, Failed, JobCancelled, JobChanged, JobSubmitted, Outcome
from phalanx.workload.gang import Gang
from phalanx.workload.job import Job
from phalanx.workload.sizes import at_least, least_leaves, leaves

NOTHING = Usage()


def observe_wants(memory: Memory, event: Event, now: int) -> None:
    """Keeps account of what each job asks for. `version` tells two accounts apart."""
    if "wants" not in memory:
        memory.update({"wants": {}, "jobs": {}, "version": 0})
    match event:
        case JobSubmitted() | JobChanged():
            _forget(memory, event.job.id)
            _remember(memory, event.job)
        case JobCancelled():
            _forget(memory, event.job)
        case AttemptEnded() if event.outcome is Outcome.SUCCEEDED:
            _forget(memory, event.job)
        case AttemptEnded() if event.outcome is Outcome.FAILED:
            _fail(memory, event.job)
        case Failed() if not event.retryable:
            _forget(memory, event.action.job)


def wants_of(memory: Mapping[str, Any], queue: str) -> Usage:
    """What the jobs of a queue, and of those inside it, ask for."""
    found = memory.get("wants", {}).get(queue)
    return Usage(*found) if found is not None else NOTHING


@lru_cache(maxsize=1 << 16)
def need_of(gang: Gang, largest: bool = False) -> Usage:
    """What a gang takes of what queues have quotas of, at its smallest or its largest."""
    gpus = cpus = memory = 0
    for role, count in leaves(gang.roles) if largest else least_leaves(at_least(gang.roles)):
        task = role.task
        gpus += count * task.gpus * share_permille(task.share)
        cpus += count * task.cpus_milli
        memory += count * task.memory_mb
    return Usage(gpus, cpus, memory)


def _remember(memory: Memory, job: Job) -> None:
    """An entry is the queue, how often the job may still fail, and what it asks for."""
    need = need_of(job.gang, largest=True)
    memory["jobs"][job.id] = [job.queue, job.retry_limit, *need]
    _add(memory, job.queue, need, 1)


def _forget(memory: Memory, job: str) -> None:
    entry = memory["jobs"].pop(job, None)
    if entry is not None:
        _add(memory, entry[0], Usage(*entry[2:]), -1)


def _fail(memory: Memory, job: str) -> None:
    entry = memory["jobs"].get(job)
    if entry is None:
        return
    if entry[1] > 0:
        entry[1] -= 1
    else:
        _forget(memory, job)


def _add(memory: Memory, queue: str, need: Usage, sign: int) -> None:
    memory["version"] += 1
    for path in ancestors(queue):
        wants = memory["wants"].setdefault(path, [0, 0, 0])
        for resource, amount in enumerate(need):
            wants[resource] += sign * amount
