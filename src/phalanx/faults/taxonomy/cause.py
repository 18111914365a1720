"""Causes of failures: where each lies, how often it comes, and from where a job recovers after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from phalanx.faults.taxonomy.fleet import HOURS_PER_DAY, Fleet, Rate, Unit


class Domain(StrEnum):
    """Where a cause lies."""

    HARDWARE = "hardware"
    NETWORK = "network"
    SYSTEM = "system software"
    USER = "user program"
    FACILITY = "facility"


class Recovery(StrEnum):
    """What a job needs to go on, from the cheapest."""

    REROUTE = "reroute"
    PROCESS = "restart the processes"
    NODE = "replace the node"
    STORAGE = "restore from storage"


class Severity(StrEnum):
    """Whether a node is drained at once or when its job has ended."""

    HIGH = "drain now"
    LOW = "drain after the job"


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause. `assumed` says what of it is not in its source."""

    name: str
    domain: Domain
    recovery: Recovery
    rate: Rate
    assumed: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """What breaks at one site. `mix` means that the source gives shares only, so that a rate has to be given."""

    name: str
    title: str
    causes: tuple[Cause, ...]
    source: str
    date: str
    mix: bool = False

    def per_hour(self, fleet: Fleet) -> float:
        """Failures of a fleet in an hour."""
        return sum(cause.rate.of(fleet) for cause in self.causes)

    def mttf_hours(self, fleet: Fleet) -> float:
        """Mean time to the first failure of any of a fleet."""
        per_hour = self.per_hour(fleet)
        return 1 / per_hour if per_hour else float("inf")

    def per_hour_by_recovery(self, fleet: Fleet) -> dict[Recovery, float]:
        """Failures of a fleet in an hour by what they need, each way of recovery once."""
        found = dict.fromkeys(Recovery, 0.0)
        for cause in self.causes:
            found[cause.recovery] += cause.rate.of(fleet)
        return found

    def times(self, factor: float) -> Profile:
        """The same, so many times as often."""
        return replace(self, causes=tuple(replace(each, rate=each.rate.times(factor)) for each in self.causes))

    def at(self, per_1000_node_days: float, gpus_per_node: int = 8) -> Profile:
        """The same mix at another rate, of nodes with so many GPUs and as many links."""
        node = Fleet(gpus_per_node, gpus_per_node, gpus_per_node)
        own = self.per_hour(node) * HOURS_PER_DAY * 1000
        return replace(self.times(per_1000_node_days / own), mix=False)


def shares(profile: Profile, fleet: Fleet) -> list[tuple[Cause, float]]:
    """Each cause with its share of a fleet's failures, the most frequent first."""
    whole = profile.per_hour(fleet)
    found = [(cause, cause.rate.of(fleet) / whole if whole else 0.0) for cause in profile.causes]
    return sorted(found, key=lambda each: -each[1])


def unit_rate(cause: Cause) -> str:
    """A rate as people read it: failures in a million hours of its unit."""
    plural = {Unit.GPU: "GPU-hours", Unit.NODE: "node-hours", Unit.LINK: "link-hours"}[cause.rate.unit]
    return f"{cause.rate.per_hour * 1e6:.3g} in a million {plural}"
