"""What virtual clusters refuse: configurations that own more than there is, and jobs that no cell could ever take."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.cells import CellError
from phalanx.cluster.cluster import CLUSTER, Cluster
from phalanx.engine.state.cells import Tenancy
from phalanx.engine.state.errors import NeverFitsError
from phalanx.engine.state.state import State
from phalanx.placement.cells.ask import all_tasks_of, leaf_request_of, request_of, shares_leaves, tasks_of
from phalanx.placement.cells.cells import Cells
from phalanx.placement.cells.validate import validate
from phalanx.protocol.cells_steps import CellStep
from phalanx.workload.gang import Role
from phalanx.workload.job import Job


def check_cluster(cluster: Cluster) -> None:
    """Raises ValueError for virtual clusters that cannot all have what they own, with the arithmetic."""
    assert cluster.cells is not None, "a cluster without cells owes nobody any"
    if cluster.queues:
        raise ValueError("a cluster has queues or virtual clusters, not both: a virtual cluster is a queue")
    try:
        Cells(cluster.cells)
    except CellError as error:
        raise ValueError(str(error)) from None


def check_job(tenancy: Tenancy, job: Job) -> None:
    """Raises ValueError for a job that its virtual cluster could never take, with the arithmetic."""
    request = request_of(job)
    if request is None:
        return
    kinds = dict.fromkeys(task.gpu_types for _, task in tasks_of(job) if task.gpu_types)
    if len(kinds) > 1:
        told = " and ".join("/".join(names) for names in kinds)
        raise ValueError(f"job {job.id} asks for {told}: a gang has cells of one kind of GPU")
    if shares_leaves(job):
        if any(task.share is None for _, task in all_tasks_of(job)):
            raise ValueError(f"job {job.id} asks for parts of devices and for whole ones: in cells, not both")
        request = leaf_request_of(job, request.group)
    for role in _roles(job.gang.roles):
        if role.topology.required not in ("", CLUSTER):
            raise ValueError(
                f"job {job.id}, role {role.name}: cells are chosen for a whole gang, "
                f"so only that can be required to lie in one {role.topology.required}"
            )
    try:
        validate(tenancy.cells.estate, request)
    except CellError as error:
        reason = str(error).removeprefix(f"group '{request.group}': ")
        known = request.virtual_cluster in tenancy.cells.estate.clusters
        raise (NeverFitsError if known else ValueError)(f"job {job.id} can never run: {reason}") from None


def _roles(roles: tuple[Role, ...]) -> Iterator[Role]:
    for role in roles:
        yield role
        yield from _roles(role.members)


def check_steps(state: State, steps: tuple[CellStep, ...]) -> None:
    """Raises ValueError if steps contradict the cells as they are: they are tried, and taken back."""
    if not steps:
        return
    if state.cells is None:
        raise ValueError("a decision on cells of a cluster that has none")
    state.cells.open(state.capacity)
    try:
        state.cells.fold(steps, state.jobs)
    except (CellError, KeyError, AssertionError) as error:
        raise ValueError(f"a decision that contradicts the cells: {error}") from None
    finally:
        state.cells.close()
