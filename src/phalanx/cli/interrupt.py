"""Ctrl-C as a wish: a run ends after the turn it is in, so that what it has come to can be told."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Self


class Interrupt:
    """While it is entered, the first Ctrl-C sets `asked`; a second one interrupts as usual."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
