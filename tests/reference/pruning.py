"""Victims that are dropped one after the other, each by a try: the specification of `Pruning`."""

from __future__ import annotations

from phalanx.engine.preempt.pruning import Pruning, Victims


class PlainPruning(Pruning):
    """Likewise, with nothing known but by a try."""

    def of(self, victims: Victims, drop_first: Victims) -> Victims:
        """Those without which the head does not fit, as far as others were dropped before."""
        needed = victims
        for victim in drop_first:
            if len(needed) == 1 or self._ends():
                break
            fewer = [other for other in needed if other is not victim]
            if self._fits(fewer):
                needed = fewer
        return needed
