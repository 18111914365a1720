"""The sums that torch.save adds to its archives, left out while we write: they would take longer than all the rest."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_inside = 0
_before = True


@contextmanager
def without_crc() -> Iterator[None]:
    """The last thread to leave puts the setting back: torch 2.11 has one for all threads, later ones one for each.

    To be used in threads that end afterwards, which then take their own setting with them.
    """
    global _inside, _before
    with _lock:
        if not _inside:
            _before = torch.serialization.get_crc32_options()
        _inside += 1
        torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                torch.serialization.set_crc32_options(_before)
