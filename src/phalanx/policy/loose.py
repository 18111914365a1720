"""Loose gangs: gangs whose tasks may be divided over several nodes, where being close is not worth a wait."""

from __future__ import annotations

from dataclasses import replace

from phalanx.policy.view import JobView, Moment
from phalanx.workload.gang import ANYWHERE, Gang, Role

SKEWED_MODELS = ("vgg", "alexnet", "overfeat", "bert", "lstm", "deepspeech")
"""Models with a few large tensors, which suffer when spread: the profile of Tiresias (Gu et al., NSDI 2019, §3.3)."""


def loosened(gang: Gang) -> Gang:
    """The gang with every task that may be divided as tasks of one GPU each, anywhere."""
    if not any(role.task.divisible and role.task.gpus > 1 for role in gang.roles):
        return gang
    return Gang(tuple(_divided(role) for role in gang.roles), ANYWHERE)


def _divided(role: Role) -> Role:
    task = role.task
    if not task.divisible or task.gpus <= 1 or role.members:
        return role
    parts = task.gpus
    one = replace(
        task,
        gpus=1,
        cpus_milli=-(-task.cpus_milli // parts),
        memory_mb=-(-task.memory_mb // parts),
    )
    return replace(role, task=one, replicas_min=role.replicas_min * parts, replicas_max=role.replicas_max * parts)


def consolidate_skewed(job: JobView, at: Moment) -> Gang:
    """Only models with skewed tensors are kept together; all other jobs take any free GPUs, which cuts their wait."""
    model = dict(job.job.labels).get("model", "").lower()
    return job.job.gang if model.startswith(SKEWED_MODELS) else loosened(job.job.gang)
