"""What the backend cannot do: no plan relies on it."""

from __future__ import annotations

from phalanx.engine.state.records import Phase
from phalanx.engine.state.state import State


def plan_without(state: State, lacks: tuple[str, ...]) -> None:
    """Plans without these from now on, and again with what the backend can do that it could not before."""
    state.lacks = lacks
    if "resize" in lacks:
        state.elastic.clear()
        return
    for attempt in state.attempts_present():
        if attempt.job.gang.elastic and attempt.phase in (Phase.RUNNING, Phase.RESIZING):
            state.elastic.setdefault(attempt.key, attempt)
