"""Canaries: a job that a node in quarantine has to run well before it takes other work again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from phalanx.engine.fold.canary import devices_for, task_of
from phalanx.engine.state.records import JobRecord, JobState
from phalanx.engine.state.state import State
from phalanx.errors import PhalanxError
from phalanx.faults.health.quarantine import Change, Quarantine
from phalanx.protocol.event import CanaryPlaced, Event, JobCancelled, JobHeld, JobSubmitted, NodeHealthChanged
from phalanx.workload.formats.native import read_job
from phalanx.workload.job import Job

LABEL = "phalanx/canary"
USER = "admin"
"""To whom canaries belong whose job file names no user: the first account of each server."""

MAX_RUN_MS = 600_000
"""How long a canary may run that does not say it: one that hangs tells as much as one that fails."""


class CanaryError(PhalanxError):
    """A job file that no canary can be made of."""


def read_canary(text: str, source: str) -> Job:
    """The job that canaries are copies of."""
    job = read_job(text, source)
    if task_of(job) is None or job.array is not None or job.after or job.kind.value == "service":
        raise CanaryError(f"{source}: expected a canary of one task with whole GPUs, which ends by itself")
    return job


def canary_of(template: Job, node: str, number: str) -> Job:
    """A canary for one node. It is tried once, and nothing preempts it."""
    return replace(
        template,
        id=number,
        name=f"canary-{node}",
        user=template.user or USER,
        labels=(*template.labels, (LABEL, node)),
        max_run_ms=template.max_run_ms or MAX_RUN_MS,
        begin_ms=None,
        preemptible=False,
        retry_limit=0,
    )


class Canaries:
    """Those of one State, by their nodes. After a restart, what was there before is cancelled and begun anew."""

    def __init__(self, state: State, template: Job) -> None:
        self._state = state
        self._template = template
        self._running: dict[str, str] = {}
        self._left_over = [job for job, record in state.jobs.items() if self._is_canary(record)]

    def is_one(self, job: str) -> bool:
        """Whether a job is a canary that runs now: what it does is no evidence beside what other jobs do."""
        return job in self._running.values()

    def events(self, quarantine: Quarantine, take_id: Callable[[], str], now: int) -> list[Event]:
        """What is to happen now: canaries that begin, and what has become of nodes by those that have ended."""
        proving = dict.fromkeys(quarantine.proving())
        found: list[Event] = [JobCancelled(job, "its server has started again") for job in self._left_over]
        self._left_over = []
        for node in [node for node in self._running if node not in proving]:
            found += self._cancel(self._running.pop(node), f"node {node} needs no canary any more")
        for node in proving:
            job = self._running.get(node)
            found += self._begin(quarantine, node, take_id) if job is None else self._look(quarantine, node, job, now)
        return found

    def _begin(self, quarantine: Quarantine, node: str, take_id: Callable[[], str]) -> list[Event]:
        state, task = self._state, task_of(self._template)
        number = state.topology.number[node]
        sound = state.capacity.all_devices[number] & ~state.capacity.unhealthy[number]
        if task is None or sound.bit_count() < task.gpus:
            return [_told(quarantine.on_probation(node, "it has too few GPUs for a canary"))]
        if devices_for(state, number, task.gpus) is None:
            return []
        job = self._running[node] = take_id()
        health = state.capacity.health[number]
        return [
            NodeHealthChanged(node, health, f"quarantine: its canary is job {job}"),
            JobSubmitted(canary_of(self._template, node, job)),
            JobHeld(job),
            CanaryPlaced(job, node),
        ]

    def _look(self, quarantine: Quarantine, node: str, job: str, now: int) -> list[Event]:
        record = self._state.jobs.get(job)
        if record is None:
            del self._running[node]
            return [_told(quarantine.on_probation(node, "the cluster takes no canary"))]
        if record.final is None:
            return [] if record.attempt is not None else self._cancel(job, f"it did not start on node {node}")
        del self._running[node]
        well = record.final is JobState.SUCCEEDED
        told = f"its canary, job {job}, has {record.final.value}"
        return [_told(quarantine.proved(node, well, told if well else f"{told}: {record.end_reason}", now))]

    def _is_canary(self, record: JobRecord) -> bool:
        job = record.job
        is_ours = job.user == (self._template.user or USER) and any(key == LABEL for key, _ in job.labels)
        return is_ours and record.final is None

    def _cancel(self, job: str, reason: str) -> list[Event]:
        record = self._state.jobs.get(job)
        is_there = record is not None and record.final is None and not record.cancelled
        return [JobCancelled(job, reason)] if is_there else []


def _told(change: Change) -> NodeHealthChanged:
    return NodeHealthChanged(change.node, change.health, change.reason)
