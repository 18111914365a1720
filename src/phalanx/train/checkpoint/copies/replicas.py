"""Where the copies of each machine's snapshot lie, and how likely it is that memory alone brings everything back.

The placement is Gemini's (SOSP 2023). N machines hold m copies of each snapshot, the own one included. If m divides N,
the machines form groups of m, and each member holds the snapshots of all. Else ⌊N/m⌋ − 1 groups are formed, and the
other m + (N mod m) machines form a ring, where machine i's snapshot lies on i and the m − 1 machines that follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from math import comb

from phalanx.errors import PhalanxError

Domains = Mapping[str, str]
"""The failure domains that a machine lies in, by kind: {"rack": "r7", "feed": "A"}."""

TRIALS_MAX = 100_000
"""How many exchanges of two machines are tried for a placement that shares fewer domains: a second's worth."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Groups and a ring of machines, by number, and which ranks each machine runs."""

    machines: tuple[tuple[int, ...], ...]
    copies: int
    groups: tuple[tuple[int, ...], ...]
    ring: tuple[int, ...]

    def holders(self, rank: int) -> tuple[int, ...]:
        """The ranks that hold a rank's snapshot, itself first. On each machine it is the one at the same place."""
        machine, place = self._seat(rank)
        return tuple(self._rank_at(holder, place) for holder in self._holding_machines(machine))

    def sources(self, rank: int) -> tuple[int, ...]:
        """The other ranks whose snapshots a rank holds."""
        neighbours = self._unit_of(self._seat(rank)[0])
        others = sorted(each for machine in neighbours for each in self.machines[machine])
        return tuple(other for other in others if other != rank and rank in self.holders(other))

    def shared_domains(self, domains: Sequence[Domains]) -> int:
        """How often two copies of one snapshot lie in the same failure domain."""
        return sum(_conflicts(unit, self.copies, domains) for unit in (*self.groups, self.ring))

    def recovery_probability(self, lost: int) -> Fraction:
        """That no snapshot loses all its copies when `lost` machines, any ones alike, are lost at once. Exact."""
        count = len(self.machines)
        if not 0 <= lost <= count:
            raise ValueError(f"{lost} of {count} machines cannot be lost")
        ring, groups = len(self.ring), len(self.groups)
        survivals = sum(
            _ring_survivals(ring, self.copies, of_ring) * _group_survivals(groups, self.copies, lost - of_ring)
            for of_ring in range(max(0, lost - groups * self.copies), min(lost, ring) + 1)
        )
        return Fraction(survivals, comb(count, lost))

    def recovers(self, lost: Sequence[int]) -> bool:
        """Whether every snapshot has a copy on a machine that is not lost."""
        gone = frozenset(lost)
        return all(not gone.issuperset(self._holding_machines(machine)) for machine in range(len(self.machines)))

    def _holding_machines(self, machine: int) -> tuple[int, ...]:
        unit = self._unit_of(machine)
        # A group of m is a ring of m, in which each follows each.
        return _window(unit, unit.index(machine), self.copies)

    def _unit_of(self, machine: int) -> tuple[int, ...]:
        """The group or the ring that a machine is in."""
        return next((group for group in self.groups if machine in group), self.ring)

    def _seat(self, rank: int) -> tuple[int, int]:
        for number, ranks in enumerate(self.machines):
            if rank in ranks:
                return number, ranks.index(rank)
        raise ValueError(f"there is no rank {rank}")

    def _rank_at(self, machine: int, place: int) -> int:
        ranks = self.machines[machine]
        return ranks[place % len(ranks)]


def place(machines: Sequence[Sequence[int]], copies: int, domains: Sequence[Domains] = ()) -> Placement:
    """Groups of machines that share as few failure domains as can be."""
    if copies < 1:
        raise PhalanxError(f"a snapshot has at least its own copy, not {copies}")
    count = len(machines)
    if domains and len(domains) != count:
        raise PhalanxError(f"there are {count} machines, and failure domains of {len(domains)}")
    copies = min(copies, count)
    orders = [list(range(count))]
    for kind in sorted({kind for each in domains for kind in each}):
        orders.append(_spread(count, copies, [each.get(kind, "") for each in domains]))
    ranks = tuple(tuple(machine) for machine in machines)
    candidates = [_improved(order, ranks, copies, domains) for order in orders]
    return min(candidates, key=lambda placement: placement.shared_domains(domains) if domains else 0)


def _cut(order: Sequence[int], machines: tuple[tuple[int, ...], ...], copies: int) -> Placement:
    count = len(order)
    whole_groups = count // copies if count % copies == 0 else count // copies - 1
    groups = tuple(tuple(order[start : start + copies]) for start in range(0, whole_groups * copies, copies))
    return Placement(machines, copies, groups, tuple(order[whole_groups * copies :]))


def _spread(count: int, copies: int, names: Sequence[str]) -> list[int]:
    """Machines sorted by domain and dealt out in turn: a domain of at most N/m machines meets no group twice."""
    by_name = sorted(range(count), key=lambda machine: (names[machine], machine))
    hands = max(1, count // copies)
    return [machine for hand in range(hands) for machine in by_name[hand::hands]]


def _improved(
    order: list[int], machines: tuple[tuple[int, ...], ...], copies: int, domains: Sequence[Domains]
) -> Placement:
    """Exchanges two machines as long as that helps: one order by one kind of domain may collide in another kind."""
    if domains:
        cut = _cut(order, machines, copies)
        sizes = [len(unit) for unit in (*cut.groups, cut.ring)]
        units = [range(sum(sizes[:number]), sum(sizes[: number + 1])) for number in range(len(sizes))]
        _exchange(order, [unit for unit in units if unit], copies, domains)
    return _cut(order, machines, copies)


def _exchange(order: list[int], units: Sequence[range], copies: int, domains: Sequence[Domains]) -> None:
    """Changes the order in place. An exchange changes two units at most, so only these are counted anew."""

    def cost(*places: range) -> int:
        return sum(_conflicts([order[at] for at in unit], copies, domains) for unit in places)

    trials = 0
    for unit in units:
        for other in units:
            if not cost(unit):
                break
            concerned = (unit,) if unit is other else (unit, other)
            for a, b in product(unit, other):
                trials += 1
                if trials > TRIALS_MAX:
                    return
                before = cost(*concerned)
                order[a], order[b] = order[b], order[a]
                if cost(*concerned) >= before:
                    order[a], order[b] = order[b], order[a]


def _window(unit: Sequence[int], at: int, copies: int) -> tuple[int, ...]:
    """The machine at a place and those that follow, as many as there are copies."""
    return tuple(unit[(at + step) % len(unit)] for step in range(copies))


def _conflicts(unit: Sequence[int], copies: int, domains: Sequence[Domains]) -> int:
    """How often, in a group or the ring, two copies of one snapshot lie in the same failure domain."""
    return sum(
        domains[a].get(kind) == domains[b].get(kind)
        for at in range(len(unit))
        for a, b in combinations(_window(unit, at, copies), 2)
        for kind in domains[a]
    )


def _group_survivals(groups: int, copies: int, lost: int) -> int:
    """The sets of so many machines that contain no group: inclusion and exclusion over the groups contained."""
    count = groups * copies
    return sum(
        (-1) ** whole * comb(groups, whole) * comb(count - whole * copies, lost - whole * copies)
        for whole in range(min(groups, lost // copies) + 1)
    )


def _ring_survivals(size: int, copies: int, lost: int) -> int:
    """The sets of so many machines of a ring that contain no `copies` neighbours in a row.

    The machines that are left cut the ring into as many stretches of lost ones, each to be shorter than m: inclusion
    and exclusion over the stretches that are not. Begun at a machine that is left, in each of n turns of the ring, that
    counts every set once for each machine that is left.
    """
    left = size - lost
    if not left:
        return int(not size)
    ways: int = sum(
        (-1) ** long * comb(left, long) * comb(size - long * copies - 1, left - 1) for long in range(lost // copies + 1)
    )
    return size * ways // left
