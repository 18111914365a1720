"""Victims that are dropped one after the other, each by a try: the specification of `Pruning`."""

from __future__ import annotations

from phalanx.engine.preempt.pruning import Pruning, Victims


class PlainPruning(Pruning):
    """Likewise, with nothing known but by a try."""

    def of(self, victims: Victims, drop_first: Victims) -> Victims:
        """Those without which the head does not fit, however many of the others are dropped."""
        needed, before = victims, 0
        while len(needed) != before:
            before = len(needed)
            for victim in drop_first:
                if len(needed) == 1 or self._ends():
                    return needed
                fewer = [other for other in needed if other is not victim]
                if len(fewer) < len(needed) and self._fits(fewer):
                    needed = fewer
        return needed
