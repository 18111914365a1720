"""Packings by name: other ways to choose among places that fit than by topology."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from zlib import crc32

from phalanx.cluster.bits import members, span
from phalanx.cluster.capacity import Capacity
from phalanx.cluster.topology import Domain
from phalanx.placement.pack import Packing
from phalanx.workload.job import Job


@dataclass(slots=True)
class NodeByNode(Packing):
    """Knows nothing of domains but those a gang requires; tasks take nodes one by one."""

    @property
    def keeps_types(self) -> bool:
        """Nodes are taken as they come."""
        return False

    def levels(self, outward: tuple[str, ...]) -> tuple[str, ...]:
        """The widest only."""
        return outward[-1:]

    def filling(self, capacity: Capacity, gpus: int, nodes: int, first: int, last: int) -> Iterator[int]:
        """A gang's tasks take nodes in the order in which single tasks would."""
        for best in self.ranked(capacity, gpus, nodes & span(first, last)):
            yield from members(best)


@dataclass(slots=True)
class Tight(NodeByNode):
    """pack: the fullest node that still fits."""

    def ranked(self, capacity: Capacity, gpus: int, nodes: int) -> Iterator[int]:
        """Fewest free GPUs first."""
        for _, having in list(capacity.by_free(gpus)):
            if nodes & having:
                yield nodes & having


@dataclass(slots=True)
class Spread(NodeByNode):
    """spread: the emptiest node, and each task of a gang on another while there is one."""

    def ranked(self, capacity: Capacity, gpus: int, nodes: int) -> Iterator[int]:
        """Most free GPUs first."""
        for having in reversed(capacity.with_free[gpus:]):
            if nodes & having:
                yield nodes & having

    def rooms(self, tightest_first: Iterable[Domain], capacity: Capacity) -> Iterable[Domain]:
        """The roomiest first."""
        return reversed(list(tightest_first))

    @property
    def one_by_one(self) -> bool:
        """Each task is seated for itself."""
        return True


@dataclass(slots=True)
class AtRandom(NodeByNode):
    """random: any node that fits, by a seed and the job's id, so that a run can be repeated."""

    seed: int = 0
    _salt: int = 0

    def begin(self, job: Job) -> None:
        """Shuffles anew for each job."""
        self._salt = crc32(job.id.encode(), self.seed)

    def ranked(self, capacity: Capacity, gpus: int, nodes: int) -> Iterator[int]:
        """In an order that means nothing."""
        fitting = list(members(nodes & sum(capacity.with_free[gpus:])))
        for node in sorted(fitting, key=self._scatter):
            yield capacity.topology.bit[node]

    def rooms(self, tightest_first: Iterable[Domain], capacity: Capacity) -> Iterable[Domain]:
        """In an order that means nothing."""
        return sorted(tightest_first, key=lambda domain: self._scatter(domain.index))

    def _scatter(self, number: int) -> int:
        """A number that is scattered but always the same: the finaliser of MurmurHash3 on number and salt."""
        mixed = (number * 0x9E3779B1 ^ self._salt) & 0xFFFFFFFF
        mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & 0xFFFFFFFF
        mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
        return mixed ^ mixed >> 16


def _at_random(seed: int) -> Packing:
    return AtRandom(seed=seed)


PACKINGS: Mapping[str, Callable[[int], Packing]] = {
    "topology": lambda seed: Packing(),
    "pack": lambda seed: Tight(),
    "spread": lambda seed: Spread(),
    "random": _at_random,
}


def packing(spec: str) -> Packing:
    """The packing written as NAME or, for the one that needs a seed, NAME:SEED."""
    name, _, seed = spec.partition(":")
    if name not in PACKINGS:
        raise ValueError(f"unknown placement {name!r} (known: {', '.join(PACKINGS)})")
    if seed and not seed.isdecimal():
        raise ValueError(f"placement {spec!r}: expected a number behind the colon")
    return PACKINGS[name](int(seed or 0))
