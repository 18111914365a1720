"""Claims of earlier decisions that can start by now."""

from __future__ import annotations

from msgspec import structs

from phalanx.engine.plan.draft import Draft


def start_promised(draft: Draft) -> None:
    """Starts of claims whose devices are all free by now."""
    for attempt in draft.state.waiting_claims.values():
        if attempt.key not in draft.withdrawn and draft.trial.promote(attempt):
            draft.touched[attempt.key] = None
            draft.promoted[attempt.key] = attempt
            draft.open_shared(attempt.bookings)
            draft.begin(attempt.job.id, attempt.number, attempt.next_seq, attempt.placement, attempt.bookings)
    if draft.state.waits_are_limited and (draft.opened or draft.loans.anybody_made_way):
        _start_those_that_wait_no_longer(draft)


def _start_those_that_wait_no_longer(draft: Draft) -> None:
    """Starts of claims of this plan, for which others were in the way who start by now, or do not after all."""
    for i, claim in enumerate(draft.claims):
        bookings = draft.bookings_of(claim) if claim.waits else []
        if bookings and draft.trial.keep_promise(bookings):
            draft.claims[i] = structs.replace(claim, waits=False)
            draft.open_shared(bookings)
            draft.begin(claim.job, claim.attempt, draft.next_seq(claim), claim.placement, bookings)


def start_prepared(draft: Draft) -> None:
    """Starts of those whose devices have been cut; if something undid it, they are cut again."""
    for attempt in draft.state.preparing.values():
        if not attempt.in_flight and attempt.key not in draft.withdrawn:
            draft.touched[attempt.key] = None
            draft.begin(attempt.job.id, attempt.number, attempt.next_seq, attempt.placement, attempt.bookings)
