"""Loose gangs: gangs whose tasks may be divided over several nodes, where being close is not worth a wait."""

from __future__ import annotations

from dataclasses import replace

from phalanx.policy.view import JobView, Moment
from phalanx.workload.family import Family, family_of
from phalanx.workload.gang import ANYWHERE, Gang, Role

EVEN_FAMILIES = (Family.CONVOLUTION, Family.REINFORCEMENT)
"""Families whose models have no tensor that is much larger than the rest, and so lose little when they are spread.

The profile of Tiresias (Gu et al., NSDI 2019, §3.3) measures that of each model: those it spreads are convolutions.
"""


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
    """Models known to have even tensors take any free GPUs, which cuts their wait. All others are kept together: of a
    model that nothing is known of, spreading may cost more than it saves.
    """
    model = dict(job.job.labels).get("model", "")
    return loosened(job.job.gang) if family_of(model) in EVEN_FAMILIES else job.job.gang
