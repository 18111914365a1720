"""The turn order: which attempts have their turn on devices that are taken in turns.

A gang runs as a whole or rests as a whole, on all its devices at once, as a part of it could do nothing alone. The one
that has rested longest comes first, so that none is passed over for ever. Any other whose devices are free runs too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from phalanx.backends.local.attempt_files import Turn
from phalanx.cluster.device import Mode
from phalanx.placement.placement import Placement

Key = tuple[str, int]
"""A job and the number of its attempt."""

Place = tuple[str, int]
"""A node and the number of a device there."""


def turn_of(placement: Placement) -> Turn:
    """The devices that an attempt takes in turns, and the job it shares its turn with."""
    slots = [slot for slot in placement.slots if slot.portion is not None and slot.portion.mode is Mode.TURNS]
    return Turn(
        places=[[slot.node, device] for slot in slots for device in slot.devices],
        beside=next((slot.portion.beside for slot in slots if slot.portion is not None), ""),
        at_step=any(slot.portion is not None and slot.portion.at_step for slot in slots),
        memory_mb=sum(slot.portion.memory_mb for slot in slots if slot.portion is not None),
    )


@dataclass(slots=True)
class _Member:
    places: frozenset[Place]
    beside: str
    joined: int
    ran: int


class TurnOrder:
    """All attempts here that take turns. `running` are those whose turn it is, in order."""

    def __init__(self) -> None:
        self.running: dict[Key, None] = {}
        self._members: dict[Key, _Member] = {}
        self._joined = count()
        self._round = 0

    @property
    def resting(self) -> tuple[Key, ...]:
        """Those whose turn it is not."""
        return tuple(key for key in self._members if key not in self.running)

    def join(self, key: Key, turn: Turn) -> None:
        """Takes an attempt in, or takes note of what has changed about it. None that runs is interrupted for it."""
        places = frozenset((str(node), int(device)) for node, device in turn["places"])
        known = self._members.get(key)
        if known is None:
            # As if it had rested in this round: its turn is the next, after those that have rested longer.
            self._members[key] = _Member(places, turn["beside"], next(self._joined), self._round - 1)
        else:
            known.places, known.beside = places, turn["beside"]
        self._fill(self.running)

    def leave(self, key: Key) -> None:
        """Lets an attempt go; one that waited for its devices has them at once."""
        if self._members.pop(key, None) is not None:
            self._fill(each for each in self.running if each != key)

    def meet(self, one: Key, other: Key) -> bool:
        """Whether two have a device in common, and are not to run at the same time."""
        if one not in self._members or other not in self._members or self._are_packed(one, other):
            return False
        return not self._members[one].places.isdisjoint(self._members[other].places)

    def turn(self) -> None:
        """Goes on to the next turn."""
        self._round += 1
        self._fill(())

    def _fill(self, keep: Iterable[Key]) -> None:
        """Has the kept ones run, and then, longest rested first, each whose devices are all free."""
        taken: dict[Place, Key] = {}
        chosen: dict[Key, None] = {}
        by_rest = sorted(self._members, key=lambda key: (self._members[key].ran, self._members[key].joined))
        for key in (*keep, *by_rest):
            member = self._members[key]
            if key not in chosen and not any(place in taken for place in member.places):
                chosen[key] = None
                taken.update(dict.fromkeys(member.places, key))
                member.ran = self._round
        self.running = {**chosen, **self._company(chosen, taken)}

    def _company(self, chosen: dict[Key, None], taken: dict[Place, Key]) -> dict[Key, None]:
        """The attempts that share the turn of a chosen one: their own is still to come."""
        found: dict[Key, None] = {}
        for key in self._members:
            hosts = {taken.get(place) for place in self._members[key].places}
            host = next(iter(hosts)) if len(hosts) == 1 else None
            if key not in chosen and host is not None and self._are_packed(key, host):
                found[key] = None
        return found

    def _are_packed(self, one: Key, other: Key) -> bool:
        return self._members[one].beside == other[0] and self._members[other].beside == one[0]
