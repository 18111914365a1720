"""The advisers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from phalanx.advice.gavel import Gavel
from phalanx.engine.event import Advice
from phalanx.engine.state import State

Adviser = Callable[[State, int], Advice]

ADVISERS: Mapping[str, Callable[[], Adviser]] = {
    "gavel": Gavel,
}


def adviser(name: str) -> Adviser:
    """The adviser that a policy names. One whose solver is not installed raises a `PhalanxError` that says how to."""
    if name not in ADVISERS:
        raise ValueError(f"unknown adviser {name!r} (known: {', '.join(ADVISERS)})")
    return ADVISERS[name]()
