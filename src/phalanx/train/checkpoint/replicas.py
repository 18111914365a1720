"""Where the copies of each machine's snapshot lie, and how likely it is that memory alone brings everything back.

The placement is Gemini's (SOSP 2023). N machines hold m copies of each snapshot, the own one included. If m divides N,
the machines form groups of m, and each member holds the snapshots of all. Else ⌊N/m⌋ − 1 groups are formed, and the
other m + (N mod m) machines form a ring, where machine i's snapshot lies on i and the m − 1 machines that follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import comb

from phalanx.errors import PhalanxError

Domains = Mapping[str, str]
"""The failure domains that a machine lies in, by kind: {"rack": "r7", "feed": "A"}."""

SWAPS_MAX = 2000


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
        everybody = sorted(each for machine in self.machines for each in machine)
        return tuple(other for other in everybody if other != rank and rank in self.holders(other))

    def shared_domains(self, domains: Sequence[Domains]) -> int:
        """How often two copies of one snapshot lie in the same failure domain."""
        return sum(_conflicts(self._holding_machines(machine), domains) for machine in range(len(self.machines)))

    def recovery_probability(self, lost: int) -> Fraction:
        """That no snapshot loses all its copies when `lost` machines, any ones alike, are lost at once. Exact."""
        count = len(self.machines)
        if not 0 <= lost <= count:
            raise ValueError(f"{lost} of {count} machines cannot be lost")
        survivals = [0] * (count + 1)
        survivals[0] = 1
        for counts in [_ring_survivals(len(self.ring), self.copies), _group_survivals(len(self.groups), self.copies)]:
            survivals = _product(survivals, counts)[: count + 1]
        return Fraction(survivals[lost], comb(count, lost))

    def recovers(self, lost: Sequence[int]) -> bool:
        """Whether every snapshot has a copy on a machine that is not lost."""
        gone = frozenset(lost)
        return all(not gone.issuperset(self._holding_machines(machine)) for machine in range(len(self.machines)))

    def _holding_machines(self, machine: int) -> tuple[int, ...]:
        for group in self.groups:
            if machine in group:
                return (machine, *(other for other in group if other != machine))
        at = self.ring.index(machine)
        return tuple(self.ring[(at + step) % len(self.ring)] for step in range(self.copies))

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
    best = _cut(order, machines, copies)
    if not domains:
        return best
    least = best.shared_domains(domains)
    for _, (a, b) in zip(range(SWAPS_MAX), combinations(range(len(order)), 2), strict=False):
        if not least:
            break
        order[a], order[b] = order[b], order[a]
        tried = _cut(order, machines, copies)
        shared = tried.shared_domains(domains)
        if shared < least:
            best, least = tried, shared
        else:
            order[a], order[b] = order[b], order[a]
    return best


def _conflicts(machines: Sequence[int], domains: Sequence[Domains]) -> int:
    return sum(
        domains[a].get(kind) == domains[b].get(kind) for a, b in combinations(machines, 2) for kind in domains[a]
    )


def _group_survivals(groups: int, copies: int) -> list[int]:
    """For each k, the sets of k machines that contain no group: inclusion and exclusion over the groups contained."""
    count = groups * copies
    return [
        sum(
            (-1) ** whole * comb(groups, whole) * comb(count - whole * copies, lost - whole * copies)
            for whole in range(lost // copies + 1)
        )
        for lost in range(count + 1)
    ]


def _ring_survivals(size: int, copies: int) -> list[int]:
    """For each k, the sets of k machines of a ring that contain no `copies` neighbours in a row.

    By inclusion and exclusion over the windows that are lost in full; windows that overlap are merged, so the sum goes
    over sets of windows. Rings are smaller than 2m machines, so there are few.
    """
    counts = [comb(size, lost) for lost in range(size + 1)]
    windows = {frozenset((start + step) % size for step in range(copies)) for start in range(size)}
    ordered = sorted(windows, key=sorted)
    for chosen in range(1, len(ordered) + 1):
        for some in combinations(ordered, chosen):
            covered = len(frozenset().union(*some))
            for lost in range(covered, size + 1):
                counts[lost] += (-1) ** chosen * comb(size - covered, lost - covered)
    return counts


def _product(left: Sequence[int], right: Sequence[int]) -> list[int]:
    """The counts for two sets of machines taken together."""
    counts = [0] * (len(left) + len(right) - 1)
    for i, a in enumerate(left):
        if a:
            for j, b in enumerate(right):
                counts[i + j] += a * b
    return counts
