"""Copies of checkpoints in the memory of other nodes, as Gemini keeps them (Wang et al., SOSP 2023).

N machines keep m copies each, their own included. If m divides N, they are cut into groups of m whose members have all
of the group's shards. Else the last m + (N mod m) machines are a ring, in which a shard is kept by its machine and the
m − 1 next ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, exp

from phalanx.errors import PhalanxError


class ReplicaError(PhalanxError):
    """Copies that there cannot be."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """How Gemini places m copies on N machines: groups of m, and a ring of the rest, if there is one."""

    machines: int
    copies: int

    def __post_init__(self) -> None:
        if not 1 <= self.copies <= self.machines:
            raise ReplicaError(f"{self.copies} copies on {self.machines} machines: expected from 1 to {self.machines}")

    @property
    def ring(self) -> int:
        """Machines of the ring; 0 where groups use up all."""
        rest = self.machines % self.copies
        return self.copies + rest if rest else 0

    @property
    def groups(self) -> int:
        """Groups of m machines."""
        return (self.machines - self.ring) // self.copies


def survives(machines: int, copies: int, lost: int) -> float:
    """The chance that every shard is still in memory when so many machines, any of them, are lost at once. Exact.

    It is the share of all ways to lose k of N machines in which no group is lost whole and no m in a row of the ring:
    the coefficient of x^k in (Σ_(j<m) C(m,j)·x^j)^groups · ring(x), over C(N,k).
    """
    mixed = Mixed(machines, copies)
    if not 0 <= lost <= machines:
        raise ReplicaError(f"{lost} of {machines} machines lost: expected from 0 to {machines}")
    group = [comb(copies, each) for each in range(min(copies - 1, lost) + 1)]
    ways = _times(_power(group, mixed.groups, lost), ring_ways(mixed.ring, copies, lost), lost)
    kept = ways[lost] if lost < len(ways) else 0
    # Whole numbers of thousands of digits divide exactly; as floats they would overflow.
    return kept / comb(machines, lost)


def ring_survives(machines: int, copies: int, lost: int) -> float:
    """The same, if all machines were one ring."""
    ways = ring_ways(machines, copies, lost)
    return (ways[lost] if lost < len(ways) else 0) / comb(machines, lost)


def gemini_bound(machines: int, copies: int, lost: int) -> float:
    """Gemini's corollary 1, a lower bound by adding up groups: 1 − (N/m)·C(N−m, k−m)/C(N,k), at least 0."""
    if lost < copies:
        return 1.0
    return max(0.0, 1 - machines / copies * comb(machines - copies, lost - copies) / comb(machines, lost))


def ring_ways(machines: int, copies: int, most: int) -> list[int]:
    """In how many ways 0, 1, 2… of a ring can be lost with never m in a row.

    Cut at each machine that is kept, the ring is N − k runs of fewer than m lost ones; by turning it, each ring is
    counted N − k times of N.
    """
    if not machines:
        return [1]
    return [_ring_ways(machines, copies, lost) for lost in range(min(most, machines) + 1)]


def _ring_ways(machines: int, copies: int, lost: int) -> int:
    kept = machines - lost
    if not kept:
        return 0
    runs = sum(
        (-1 if each % 2 else 1) * comb(kept, each) * comb(lost - each * copies + kept - 1, kept - 1)
        for each in range(min(kept, lost // copies) + 1)
    )
    return machines * runs // kept


def _times(left: list[int], right: list[int], most: int) -> list[int]:
    found = [0] * min(len(left) + len(right) - 1, most + 1)
    for at, value in enumerate(left):
        for more, other in enumerate(right[: max(len(found) - at, 0)]):
            found[at + more] += value * other
    return found


def _power(base: list[int], exponent: int, most: int) -> list[int]:
    found, square = [1], base
    while exponent:
        if exponent & 1:
            found = _times(found, square, most)
        square, exponent = _times(square, square, most), exponent >> 1
    return found


def lost_at_once(per_s: float, window_s: float, most: int) -> list[float]:
    """The chances that 1, 2, 3… machines are lost before the copies of the first are made anew: Poisson beside it."""
    mean, chances, term = per_s * window_s, [], exp(-per_s * window_s)
    for more in range(most):
        chances.append(term)
        term *= mean / (more + 1)
    chances[-1] += max(1 - sum(chances), 0.0)
    return chances


@dataclass(frozen=True, slots=True)
class Choice:
    """What so many copies bring: the chance to recover from memory, the memory of a node, and what all of it costs."""

    copies: int
    from_memory: float
    memory_gb: float
    traffic_s: float
    lost: float

    fits: bool = True


@dataclass(frozen=True, slots=True)
class Copying:
    """What copies cost and save: a node's shard, its memory for copies, the network between, and both recoveries.

    `burst` is the share of failures that take `burst_machines` at once, such as a rack.
    """

    machines: int
    shard_gb: float
    memory_gb: float
    network_gb_s: float
    per_s: float
    window_s: float
    interval_s: float
    memory_loss_s: float
    storage_loss_s: float
    burst: float = 0.0
    burst_machines: int = 4
    interference: float = 0.05


LOST_MAX = 24
COPIES_MAX = 6


def choices(copying: Copying) -> list[Choice]:
    """What each number of copies brings, up to six."""
    return [_choice(copying, copies) for copies in range(1, min(COPIES_MAX, copying.machines) + 1)]


def best_copies(copying: Copying) -> Choice:
    """The number of copies that loses least of those for which there is memory; one where there is none for more."""
    fitting = [each for each in choices(copying) if each.fits]
    return min(fitting or choices(copying)[:1], key=lambda each: (each.lost, each.copies))


def _choice(copying: Copying, copies: int) -> Choice:
    """The share of time lost: sending copies slows training by `interference` of the time it takes, and each failure
    costs a recovery from memory or, where that is gone, from storage.
    """
    most = min(LOST_MAX, copying.machines)
    alone = lost_at_once(copying.per_s, copying.window_s, most)
    spread = [each * (1 - copying.burst) for each in alone]
    spread[min(copying.burst_machines, most) - 1] += copying.burst
    kept = sum(chance * survives(copying.machines, copies, lost) for lost, chance in enumerate(spread, 1))
    traffic_s = (copies - 1) * copying.shard_gb / copying.network_gb_s
    loss_s = kept * copying.memory_loss_s + (1 - kept) * copying.storage_loss_s
    lost = traffic_s * copying.interference / copying.interval_s + copying.per_s * loss_s
    # A copy is written beside the one before it, which is kept until the new one is whole.
    memory_gb = 2 * copies * copying.shard_gb
    return Choice(copies, kept, memory_gb, traffic_s, lost, memory_gb <= copying.memory_gb)
