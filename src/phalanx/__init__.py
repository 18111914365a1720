"""phalanx: a scheduler for GPU clusters that decides, runs, survives, and can say why, when and what if."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phalanx.cluster.cluster import Cluster
    from phalanx.planning import plan
    from phalanx.policy.policy import Policy
    from phalanx.simulate.entry import compare, simulate
    from phalanx.workload.gang import Gang, Role, Task
    from phalanx.workload.job import Job
    from phalanx.workload.parallel import ParallelPlan

__all__ = ["Cluster", "Gang", "Job", "ParallelPlan", "Policy", "Role", "Task", "compare", "plan", "simulate"]

_HOMES = {
    "Cluster": "phalanx.cluster.cluster",
    "Gang": "phalanx.workload.gang",
    "Job": "phalanx.workload.job",
    "ParallelPlan": "phalanx.workload.parallel",
    "Policy": "phalanx.policy.policy",
    "Role": "phalanx.workload.gang",
    "Task": "phalanx.workload.gang",
    "compare": "phalanx.simulate.entry",
    "plan": "phalanx.planning",
    "simulate": "phalanx.simulate",
}


def __getattr__(name: str) -> object:
    """Imports a name when it is first used, so that the command line starts at once."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'phalanx' has no attribute {name!r}")
    module = import_module(home)
    # A package of that very name stands for itself.
    return module if home == f"phalanx.{name}" else getattr(module, name)
