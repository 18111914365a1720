"""Attempts that must leave, whatever else a decision finds."""

from __future__ import annotations

from phalanx.engine.plan.builder import PlanBuilder


def stop_what_must_leave(builder: PlanBuilder) -> None:
    """Stops attempts that are cancelled, on failed hardware or past their max_run, and repeats stops that failed."""
    for key, reason in builder.state.to_stop.items():
        job, _, number = key.rpartition("/")
        attempt = builder.state.attempt(job, int(number))
        assert attempt is not None, f"{key} is to be stopped but is gone"
        builder.stop(attempt, reason)
