"""The garbage collector as a server has it: what was loaded is left alone, and the rest is seldom looked through.

A server freezes its State once it is loaded, so measuring starts with a freeze, too.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

COLLECT = (200_000, 50, 50)
"""The thresholds of a server's loop; a test holds the two together."""


@contextmanager
def as_in_a_server() -> Iterator[None]:
    """Takes all there is as loaded, and sets the collector as a server does, as long as the block lasts."""
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*COLLECT)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
