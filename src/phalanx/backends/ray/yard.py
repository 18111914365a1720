"""What a Start or Resize comes to on Ray: the tasks as the local backend has them, but for what each node adds."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from phalanx.backends.local.attempt_files import Order, TaskOrder
from phalanx.backends.local.environment import PASSED_ON
from phalanx.backends.local.orders import OrderError, Yard
from phalanx.cluster.cluster import Cluster
from phalanx.placement.placement import Placement
from phalanx.protocol.action import Start
from phalanx.workload.gang import Role
from phalanx.workload.job import Job


def no_nodes() -> Cluster:
    """A cluster of which nothing is known."""
    return Cluster(())


@dataclass(frozen=True, slots=True)
class RayYard(Yard):
    """Where and how attempts run on Ray. `address` is that of its head, `driver` the folder of the process that talks
    to it; `cluster` gives the nodes of now; `site` tells the gangs of this server from those of others on that Ray.
    """

    address: str = "auto"
    driver: Path = Path()
    site: str = "phalanx"
    cluster: Callable[[], Cluster] = no_nodes

    def order(self, start: Start, job: Job, now: int) -> Order:
        """What a start comes to."""
        order = super(RayYard, self).order(start, job, now)
        return {**order, "elastic": any(map(_is_elastic, job.gang.roles))}  # type: ignore[typeddict-unknown-key]

    def task_orders(self, job: Job, attempt: int, placement: Placement, around: object) -> list[TaskOrder]:
        """Every task of a placement; what a node has of its own is not taken from this machine."""
        if job.execution.image:
            raise OrderError(f"job {job.id}: the Ray backend runs no images; leave out `image`")
        tasks = super(RayYard, self).task_orders(job, attempt, placement, around)  # type: ignore[arg-type]
        named = dict(job.execution.env)
        for task in tasks:
            task["env"] = {
                name: value
                for name, value in task["env"].items()
                if name not in PASSED_ON or name in named or os.environ.get(name) != value
            }
            task["makes_workdir"] = not job.execution.workdir  # type: ignore[typeddict-unknown-key]
        return tasks


def _is_elastic(role: Role) -> bool:
    return role.replicas_min != role.replicas_max or any(map(_is_elastic, role.members))
