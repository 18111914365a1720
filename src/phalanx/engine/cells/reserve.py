"""Backfilling in virtual clusters: a job that passes a pending head does not delay it.

A head is expected to have its cells once enough running attempts have left, by their estimates. No job passes it that
would still run then, unless the head could have cells beside it, too. It is EASY backfilling (Mu'alem and Feitelson,
IEEE TPDS 2001) with the cells as what is reserved; each virtual cluster has its own head.
"""

from __future__ import annotations

from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.state.ends import may_leave_ms
from phalanx.engine.state.records import FOREVER_MS, JobRecord
from phalanx.engine.transaction.cells import tenancy_of
from phalanx.placement.cells.ask import leaf_request_of, request_of, shares_leaves
from phalanx.placement.cells.request import Request
from phalanx.workload.job import Job

ENDS_MAX = 256
"""How many of the attempts that leave first are looked at for a head: a bound on work."""


def due_ms(builder: PlanBuilder, head: JobRecord) -> int | None:
    """When a head will find cells, by the estimates of the attempts that hold them; None if that is unknown."""
    mark, found = builder.transaction.mark(), None
    for end_ms, key in _ends(builder):
        _leaves(builder, key)
        if _fits(builder, head):
            found = end_ms
            break
    builder.transaction.undo_to(mark)
    return found


def delays(builder: PlanBuilder, head: JobRecord, at_ms: int, record: JobRecord) -> bool:
    """Whether a job that has just got cells would still be in the way of a head when its time comes."""
    if builder.now + record.estimate_ms <= at_ms:
        return False
    mark = builder.transaction.mark()
    for end_ms, key in _ends(builder):
        if end_ms <= at_ms:
            _leaves(builder, key)
    fits = _fits(builder, head)
    builder.transaction.undo_to(mark)
    return not fits


def _ends(builder: PlanBuilder) -> list[tuple[int, str]]:
    """Which attempts will have left when, the first first: those that run, and those that this plan starts."""
    ends = builder.state.ends.in_order()
    running = ((may_leave_ms(attempt, end_ms, builder.now), attempt.key) for end_ms, attempt in ends)
    known = [end for end in (*running, *builder.cell_ends) if end[0] < FOREVER_MS]
    # Of those past their time the one that should have left first comes first.
    return sorted(known, key=lambda end: end[0])[:ENDS_MAX]


def _leaves(builder: PlanBuilder, key: str) -> None:
    tenancy = tenancy_of(builder.state)
    undone = tenancy.undo.mark()
    tenancy.gone(key)
    builder.transaction.step_in_cells(undone, ())


def _fits(builder: PlanBuilder, head: JobRecord) -> bool:
    """Whether a head would get cells with no other attempt gone."""
    cells = tenancy_of(builder.state).cells
    request = _request(head.asked)
    with cells.trial():
        outcome = cells.schedule(request)
        return outcome.group is not None and not outcome.victims and not outcome.cancelled


def _request(job: Job) -> Request:
    request = leaf_request_of(job, job.id) if shares_leaves(job) else request_of(job)
    assert request is not None, f"{job.id} asks for no devices"
    return request
