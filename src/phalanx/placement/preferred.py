"""Which sets of nodes a job is tried on before all others, for the sake of what it prefers."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.placement.fit import Fit
from phalanx.workload.job import Job
from phalanx.workload.shape import has_parts
from phalanx.workload.sizes import leaves

PREFERRED_SETS_MAX = 8
"""Sets of nodes that a gang is tried on before it is tried on all: a bound on work."""


def preferred_first(fit: Fit, job: Job, nodes: int) -> Iterator[int]:
    """Ever wider sets of nodes, the most preferred first: those that may hold a gang of which all nodes hold one."""
    usable, gpus = _usable(fit, job), 0 if has_parts(job.gang.roles) else job.gang.gpus_min
    preferred, left = 0, PREFERRED_SETS_MAX
    for group in _by_weight(fit, job, nodes & fit.capacity.topology.everything)[:-1]:
        preferred |= group
        # A set to which no node was added that takes a task holds the gang no more than the one before it.
        if group & usable and (not gpus or fit.capacity.has_free(preferred & fit.capacity.open, gpus)):
            yield preferred
            left -= 1
            if not left:
                return


def _by_weight(fit: Fit, job: Job, nodes: int) -> list[int]:
    """The nodes of equal weight, the heaviest first."""
    groups = {0: nodes}
    for preference in job.preferences:
        labelled = fit.labelled(preference.label, preference.value)
        if not labelled & nodes:
            continue
        split: dict[int, int] = {}
        for weight, group in groups.items():
            for part, more in ((group & ~labelled, 0), (group & labelled, preference.weight)):
                if part:
                    split[weight + more] = split.get(weight + more, 0) | part
        groups = split
    return [group for _, group in sorted(groups.items(), reverse=True)]


def _usable(fit: Fit, job: Job) -> int:
    """Nodes that take at least one task of a gang now."""
    usable = 0
    for role, _ in leaves(job.gang.roles):
        ask = fit.ask(role.task, job)
        passing = fit.passing(ask)
        usable |= passing & sum(fit.capacity.with_free[ask.gpus :]) if ask.gpus and not ask.portions else passing
    return usable
