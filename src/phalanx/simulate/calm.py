"""Calm: a run makes millions of small things and hardly any circles, so looking for circles is put off meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = (5_000_000, 50, 1_000)
"""Python's own thresholds look through all jobs again and again, which took a fifth of the time of a run."""


@contextmanager
def calm() -> Iterator[None]:
    """Has the garbage collector look seldom, as long as the block lasts."""
    usual = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            # What was made meanwhile counts as old from now on, else all of it would be looked through at once.
            gc.freeze()
            gc.unfreeze()
        gc.set_threshold(*usual)
