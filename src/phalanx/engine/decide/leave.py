"""Attempts that must leave, whatever else a decision finds."""

from __future__ import annotations

from phalanx.engine.plan.draft import Draft


def stop_what_must_leave(draft: Draft) -> None:
    """Stops the cancelled, those on failed hardware, those who ran too long, and repeats stops that failed."""
    for key, reason in draft.state.to_stop.items():
        job, _, number = key.rpartition("/")
        attempt = draft.state.attempt(job, int(number))
        assert attempt is not None, f"{key} is to be stopped but is gone"
        draft.stop(attempt, reason)
