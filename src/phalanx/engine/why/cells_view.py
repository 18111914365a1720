"""A virtual cluster, for the explanation of a pending job: what it owns, and in which shapes that is free."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.state import State
from phalanx.placement.cells.limits import borrowed
from phalanx.placement.cells.status import cluster_status


@dataclass(frozen=True, slots=True)
class VirtualClusterView:
    """A virtual cluster: GPUs of all its cells, how many tasks of each size could start there now, what is broken.

    `fragmentation` is the share of the free GPUs that tasks of a whole node cannot use. `cells_doomed` could only be
    had broken. `gpus_borrowed` are those of its jobs that have no guarantee.
    """

    name: str
    gpus: int
    gpus_free: int
    fits: tuple[tuple[int, int], ...]
    fragmentation: float
    cells: int
    cells_bad: int
    cells_doomed: int
    gpus_borrowed: int
    borrow_limit: int | None


def view_of(state: State, record: JobRecord) -> VirtualClusterView | None:
    """The virtual cluster of a job; None where there are none, or no such one any more."""
    if state.cells is None or record.job.queue not in state.cells.cells.estate.clusters:
        return None
    estate = state.cells.cells.estate
    status = cluster_status(estate, record.job.queue)
    fits: dict[int, int] = {}
    for shapes in status.shapes:
        for size, count in shapes.fits.items():
            fits[size] = fits.get(size, 0) + count
    free = sum(shapes.free_leaves for shapes in status.shapes)
    broken_up = sum(shapes.free_leaves * shapes.fragmentation for shapes in status.shapes)
    return VirtualClusterView(
        record.job.queue,
        sum(shapes.leaves for shapes in status.shapes),
        free,
        tuple(sorted(fits.items())),
        round(broken_up / free, 3) if free else 0.0,
        len(status.owned),
        len(status.bad_cells),
        len(status.doomed_bad_cells),
        borrowed(estate, record.job.queue),
        estate.borrow_max[record.job.queue],
    )
