"""Pruning: which of some victims a head can do without, the first of an order first."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.engine.state.records import AttemptRecord

WillDo = Callable[[list[AttemptRecord], list[AttemptRecord]], bool]
"""Whether the head fits with some victims, without others that are spared. Of several that are spared at once it says
so only where it would fit as well with any of them left among the victims.
"""


def spare_one_by_one(victims: list[AttemptRecord], order: list[AttemptRecord], will_do: WillDo) -> list[AttemptRecord]:
    """The victims that are left once each was spared that can be, one after the other; at least one."""
    needed = victims
    for victim in order:
        if len(needed) == 1:
            break
        fewer = [other for other in needed if other is not victim]
        if will_do(fewer, [victim]):
            needed = fewer
    return needed


def spare_together(victims: list[AttemptRecord], order: list[AttemptRecord], will_do: WillDo) -> list[AttemptRecord]:
    """The same with fewer attempts: twice as many are spared at once as long as that goes well, else half as many."""
    needed, at, count = victims, 0, 1
    while at < len(order) and len(needed) > 1:
        spared = order[at : at + min(count, len(needed) - 1)]
        keys = dict.fromkeys(victim.key for victim in spared)
        fewer = [other for other in needed if other.key not in keys]
        if will_do(fewer, spared):
            needed, at, count = fewer, at + len(spared), 2 * count
        elif len(spared) > 1:
            count = len(spared) // 2
        else:
            at += 1
    return needed
