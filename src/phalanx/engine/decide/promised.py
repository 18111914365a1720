"""Claims of earlier decisions that can start by now."""

from __future__ import annotations

from msgspec import structs

from phalanx.engine.plan.builder import PlanBuilder


def start_promised(builder: PlanBuilder) -> None:
    """Starts of claims whose devices are all free by now."""
    for attempt in builder.state.waiting_claims.values():
        if attempt.key not in builder.withdrawn and builder.transaction.promote(attempt):
            builder.touched[attempt.key] = None
            builder.promoted[attempt.key] = attempt
            builder.open_shared(attempt.bookings)
            builder.begin(attempt.job.id, attempt.number, attempt.next_seq, attempt.placement, attempt.bookings)
    if builder.state.waits_are_limited and (builder.opened or builder.borrows.any_made_way):
        _start_those_that_wait_no_longer(builder)


def _start_those_that_wait_no_longer(builder: PlanBuilder) -> None:
    """Starts of claims of this plan for which the claims in the way start by now, or do not after all."""
    for i, claim in enumerate(builder.claims):
        bookings = builder.bookings_of(claim) if claim.waits else []
        if bookings and builder.transaction.keep_promise(bookings):
            builder.claims[i] = structs.replace(claim, waits=False)
            builder.open_shared(bookings)
            builder.begin(claim.job, claim.attempt, builder.next_seq(claim), claim.placement, bookings)


def start_prepared(builder: PlanBuilder) -> None:
    """Starts of attempts whose devices have been repartitioned; if something undid that, it is done again."""
    for attempt in builder.state.preparing.values():
        if not attempt.in_flight and attempt.key not in builder.withdrawn:
            builder.touched[attempt.key] = None
            builder.begin(attempt.job.id, attempt.number, attempt.next_seq, attempt.placement, attempt.bookings)
