"""When running jobs are next moved to make a place for a pending one: at most once in a period that a site sets."""

from __future__ import annotations

from phalanx.engine.state.scattered import scattered
from phalanx.engine.state.state import State


def expect(state: State) -> None:
    """Has it be due at the next full period, if any pending job could be helped by it."""
    period_ms = state.cluster.defragment_ms
    if period_ms and not state.defragments_at_ms and any(scattered(state)):
        state.defragments_at_ms = (state.now // period_ms + 1) * period_ms
        state.set_timer(state.defragments_at_ms, "defragment", "")
