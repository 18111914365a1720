"""Rest: an attempt that takes turns is frozen while it is others' turn."""

from __future__ import annotations

from collections.abc import Callable, Collection

from phalanx.backends.local.shepherd.boundary import Boundary
from phalanx.backends.local.shepherd.loop import Loop, Timer
from phalanx.backends.local.shepherd.tidy import freeze, thaw


class Rest:
    """Frozen for a while. It ends by itself: whoever keeps the turns may have gone."""

    def __init__(
        self, loop: Loop, boundary: Boundary, spared: Callable[[], Collection[int]], tell: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._boundary = boundary
        self._spared = spared
        self._tell = tell
        self._timer: Timer | None = None

    def __bool__(self) -> bool:
        return self._timer is not None

    def begin(self, for_ms: int, patience_ms: int = 0) -> None:
        """Freezes all but the sessions of people who look on; also who came since, where a rest goes on for longer.

        With patience it is waited for the end of a step before.
        """
        if self._timer is not None:
            self._freeze(for_ms)
        else:
            self._boundary.wait(patience_ms, lambda: self._freeze(for_ms))

    def _freeze(self, for_ms: int) -> None:
        freeze(self._spared())
        if self._timer is not None:
            self._timer.call_off()
        self._timer = self._loop.after(for_ms, self.end)
        self._tell()

    def end(self) -> None:
        """Lets everything go on."""
        self._boundary.call_off()
        if self._timer is not None:
            self._timer.call_off()
            self._timer = None
            thaw()
