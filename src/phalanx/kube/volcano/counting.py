"""Counting: how many pods of a job are in which phase."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phalanx.kube.volcano.job import JobStatus, PhaseCount, VolcanoJob, Worker

PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


def counted(job: VolcanoJob, there: Iterable[Worker], doomed: Iterable[Worker], status: JobStatus) -> JobStatus:
    """A status with all pods counted: those that are to be deleted are terminating already."""
    pods = {pod.metadata.name: pod for pod in there}
    leaving = dict.fromkeys(pod.metadata.name for pod in doomed)
    leaving |= dict.fromkeys(name for name, pod in pods.items() if pod.is_leaving)
    tasks: dict[str, dict[str, int]] = {}
    for name, pod in pods.items():
        if name not in leaving:
            phases = tasks.setdefault(pod.task, {})
            phases[pod.status.phase] = phases.get(pod.status.phase, 0) + 1
    total = {phase.lower(): sum(count.get(phase, 0) for count in tasks.values()) for phase in PHASES}
    return msgspec.structs.replace(
        status,
        min_available=job.least,
        task_status_count={name: PhaseCount(phase=count) for name, count in tasks.items()} or None,
        terminating=len(leaving),
        **total,
    )
