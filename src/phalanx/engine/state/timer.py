"""Timers of the State: what is due at a moment."""

from __future__ import annotations

from typing import NamedTuple


class Timer(NamedTuple):
    """Something that happens by itself at a moment: `kind` says what, for which attempt and action."""

    at_ms: int
    number: int
    kind: str
    job: str
    attempt: int = 0
    seq: int = 0
