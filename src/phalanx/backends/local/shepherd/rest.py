"""Rest: an attempt that takes turns is frozen while it is the turn of another."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import partial

from phalanx.backends.local.shepherd.boundary import Boundary
from phalanx.backends.local.shepherd.loop import Loop, Timer
from phalanx.backends.local.shepherd.swap import Swap, SwapOutcome
from phalanx.backends.local.shepherd.tasks.tidy import freeze, thaw

BETWEEN_TRIES_MS = 1_000
"""How long after its memory did not fit on the devices it is tried again."""


class Rest:
    """Frozen for a while. It ends by itself: the process that keeps the turns may have gone.

    An attempt with more device memory than it may keep leaves it to others meanwhile. That takes seconds; what comes in
    between counts once it is done.
    """

    def __init__(
        self,
        loop: Loop,
        boundary: Boundary,
        swap: Swap,
        spared: Callable[[], Collection[int]],
        tell: Callable[[], None],
        runs: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._boundary = boundary
        self._swap = swap
        self._spared = spared
        self._tell = tell
        self._runs = runs
        self._timer: Timer | None = None
        self._has_left = False
        self._is_over = False
        self._asked: Callable[[], None] | None = None

    def __bool__(self) -> bool:
        return self._timer is not None

    def begin(self, for_ms: int, patience_ms: int = 0, over_mb: int = 0) -> None:
        """Freezes all but the sessions of people that look on; also new processes, where a rest goes on for longer.

        With patience it is waited for the end of a step before. With more than `over_mb` of device memory, where that
        is given, it leaves that to other attempts.
        """
        self._is_over = False
        if self._swap.pid:
            self._asked = partial(self.begin, for_ms, patience_ms, over_mb)
        elif self._timer is not None or self._has_left:
            self._freeze(for_ms)
        else:
            self._boundary.wait(patience_ms, lambda: self._leave(for_ms, over_mb))

    def _leave(self, for_ms: int, over_mb: int) -> None:
        if not over_mb:
            self._freeze(for_ms)
            return

        def left(outcome: SwapOutcome) -> None:
            # If it could not leave, it rests where it is: the next may find too little memory, as without this.
            self._has_left = outcome["ok"] and outcome["mb"] > 0
            self._freeze(for_ms)
            if self._is_over:
                self.end()
            else:
                self._do_asked()

        self._swap.begin({**self._order("out"), "over_mb": over_mb}, left)

    def _freeze(self, for_ms: int) -> None:
        freeze(self._spared())
        if self._timer is not None:
            self._timer.call_off()
        self._timer = self._loop.after(for_ms, self.end)
        self._tell()

    def end(self) -> None:
        """Lets everything go on."""
        self._boundary.call_off()
        self._is_over = True
        self._asked = None
        if self._timer is None or self._swap.pid:
            return
        self._timer.call_off()
        self._timer = None
        thaw()
        self._come_back()

    def _come_back(self) -> None:
        """Has its memory on the devices again. An attempt that could not leave them for want of host memory is in the
        way: then it is tried until it fits, or until the next rest.
        """
        if not self._has_left or self._timer is not None:
            return
        if self._swap.pid or not self._runs():
            # It is being suspended or is, and another attempt has its devices.
            self._loop.after(BETWEEN_TRIES_MS, self._come_back)
            return

        def came(outcome: SwapOutcome) -> None:
            self._has_left = not outcome["ok"]
            self._do_asked()
            if self._has_left:
                self._loop.after(BETWEEN_TRIES_MS, self._come_back)

        self._swap.begin(self._order("in"), came)

    def _do_asked(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked()

    def _order(self, what: str) -> dict[str, object]:
        return {"do": what, "of": os.getpid(), "spared": list(self._spared())}
