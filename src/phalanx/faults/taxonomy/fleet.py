"""A fleet: how many GPUs, nodes and links there are, and rates that count failures of one of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from phalanx.errors import PhalanxError

HOURS_PER_DAY = 24.0


class FleetError(PhalanxError):
    """A fleet that there cannot be."""


class Unit(StrEnum):
    """What a rate is of."""

    GPU = "GPU"
    NODE = "node"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Fleet:
    """What a job runs on. Each node has a link to the network for each of its `links_per_node`."""

    gpus: int
    gpus_per_node: int = 8
    links_per_node: int = 8

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.gpus_per_node < 1 or self.links_per_node < 0:
            raise FleetError(
                f"a fleet of {self.gpus} GPUs, {self.gpus_per_node} a node with {self.links_per_node} links: "
                "expected at least 1 GPU, 1 a node, and no number of links below 0"
            )

    @property
    def nodes(self) -> int:
        """Nodes that it takes; the last may be used in part."""
        return -(-self.gpus // self.gpus_per_node)

    def count(self, unit: Unit) -> int:
        """How many there are of a unit."""
        match unit:
            case Unit.GPU:
                return self.gpus
            case Unit.NODE:
                return self.nodes
            case Unit.LINK:
                return self.nodes * self.links_per_node


@dataclass(frozen=True, slots=True)
class Rate:
    """Failures of one unit in an hour."""

    per_hour: float
    unit: Unit

    @classmethod
    def per_1000_node_days(cls, failures: float) -> Rate:
        """As papers of operators have it."""
        return cls(failures / 1000 / HOURS_PER_DAY, Unit.NODE)

    @classmethod
    def counted(cls, failures: int, hours: float, units: int, unit: Unit) -> Rate:
        """So many failures of so many units in so many hours."""
        return cls(failures / hours / units, unit)

    @classmethod
    def every(cls, hours: float, units: int, unit: Unit) -> Rate:
        """One failure every so many hours among so many units."""
        return cls(1 / hours / units, unit)

    def of(self, fleet: Fleet) -> float:
        """Failures of a fleet in an hour."""
        return self.per_hour * fleet.count(self.unit)

    def times(self, factor: float) -> Rate:
        """So many times as often."""
        return Rate(self.per_hour * factor, self.unit)
