"""Backfilling in virtual clusters: who passes a head that waits does not delay it.

A head is expected to have its cells once so many of those who run have left by what they say of their length. Nobody
passes it who would run on then, unless the head could have cells beside him, too. It is EASY backfilling (Mu'alem and
Feitelson, IEEE TPDS 2001) with the cells as what is reserved; each virtual cluster has its own head.
"""

from __future__ import annotations

from phalanx.engine.plan.draft import Draft
from phalanx.engine.state.ends import may_leave_ms
from phalanx.engine.state.records import FOREVER_MS, JobRecord
from phalanx.engine.transaction.cells import tenancy_of
from phalanx.placement.cells.ask import leaf_request_of, request_of, shares_leaves
from phalanx.placement.cells.request import Request
from phalanx.workload.job import Job

ENDS_MAX = 256
"""Those who leave first that are looked at for a head: a bound on work."""


def due_ms(draft: Draft, head: JobRecord) -> int | None:
    """When a head will find cells, by what is known of those who hold them; None if nobody knows."""
    mark, found = draft.trial.mark(), None
    for end_ms, key in _ends(draft):
        _leaves(draft, key)
        if _fits(draft, head):
            found = end_ms
            break
    draft.trial.undo_to(mark)
    return found


def delays(draft: Draft, head: JobRecord, at_ms: int, record: JobRecord) -> bool:
    """Whether a job that has just got cells would still be in the way of a head when its time comes."""
    if draft.now + record.estimate_ms <= at_ms:
        return False
    mark = draft.trial.mark()
    for end_ms, key in _ends(draft):
        if end_ms <= at_ms:
            _leaves(draft, key)
    fits = _fits(draft, head)
    draft.trial.undo_to(mark)
    return not fits


def _ends(draft: Draft) -> list[tuple[int, str]]:
    """Who will have left when, the first first: those who run, and those whom this plan starts."""
    ends = draft.state.ends.in_order()
    running = ((may_leave_ms(attempt, end_ms, draft.now), attempt.key) for end_ms, attempt in ends)
    known = [end for end in (*running, *draft.cell_ends) if end[0] < FOREVER_MS]
    # Of those past their time the one that should have left first comes first.
    return sorted(known, key=lambda end: end[0])[:ENDS_MAX]


def _leaves(draft: Draft, key: str) -> None:
    tenancy = tenancy_of(draft.state)
    undone = tenancy.undo.mark()
    tenancy.gone(key)
    draft.trial.step_in_cells(undone, ())


def _fits(draft: Draft, head: JobRecord) -> bool:
    """Whether a head would get cells with nobody else gone."""
    cells = tenancy_of(draft.state).cells
    request = _request(head.asked)
    with cells.trial():
        outcome = cells.schedule(request)
        return outcome.group is not None and not outcome.victims and not outcome.cancelled


def _request(job: Job) -> Request:
    request = leaf_request_of(job, job.id) if shares_leaves(job) else request_of(job)
    assert request is not None, f"{job.id} asks for no devices"
    return request
