"""Pruning: of victims that suffice for a head those are dropped that it can do without, one after the other.

Where many were tried together, most can be dropped. A head that fits with some victims preempted fits with more of
them: so one try without several victims says of each that it can be dropped, if quotas let the others go every time.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.engine.preempt.slack import Slack
from phalanx.engine.state.records import AttemptRecord

Victims = list[AttemptRecord]


class Pruning:
    """Drops victims in an order, in leaps that grow as long as the head fits. What is left is what dropping one after
    the other would leave. Without a `slack_of` each victim is tried alone.
    """

    def __init__(
        self, fits: Callable[[Victims], bool], ends: Callable[[], bool], slack_of: Callable[[Victims], Slack] | None
    ) -> None:
        self._fits = fits
        self._ends = ends
        self._slack_of = slack_of

    def of(self, victims: Victims, drop_first: Victims) -> Victims:
        """Those of the victims that are needed.

        Some may be needed only so that another one may go. Once that one is dropped, they are looked at again.
        """
        needed = self._pass(victims, drop_first)
        while len(needed) < len(victims) and len(needed) > 1 and not self._ends():
            keys = {victim.key for victim in needed}
            victims, drop_first = needed, [victim for victim in drop_first if victim.key in keys]
            needed = self._pass(victims, drop_first)
        return needed

    def _pass(self, victims: Victims, drop_first: Victims) -> Victims:
        needed, leap = victims, 1
        at = fails_before = 0
        while at < len(drop_first) and len(needed) > 1 and not self._ends():
            dropped, end = self._run(needed, drop_first, at, leap)
            keys = {victim.key for victim in dropped}
            fewer = [victim for victim in needed if victim.key not in keys]
            if not dropped or self._fits(fewer):
                needed, at = fewer, end
                # A run that did not do without is looked through by halves.
                leap = max(leap // 2, 1) if at < fails_before else leap * 2
            elif len(dropped) > 1:
                leap, fails_before = len(dropped) // 2, end
            else:
                at, leap = end, 1
        return needed

    def _run(self, needed: Victims, drop_first: Victims, at: int, leap: int) -> tuple[Victims, int]:
        """The next victims that may be dropped, no more than a leap and not the last one; and where they end."""
        if self._slack_of is None:
            return [drop_first[at]], at + 1
        slack = self._slack_of(needed)
        dropped: Victims = []
        while at < len(drop_first) and len(dropped) < min(leap, len(needed) - 1):
            if slack.may_drop(drop_first[at]):
                slack.drop(drop_first[at])
                dropped.append(drop_first[at])
            at += 1
        return dropped, at
