"""A design for fault tolerance: what a job of a size needs to reach a ratio of effective training time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import isfinite

from phalanx.errors import PhalanxError
from phalanx.faults.reliability.ettr import goodput
from phalanx.faults.reliability.network import Reroute, reroute
from phalanx.faults.reliability.replicas import Choice, Copying, best_copies, choices
from phalanx.faults.reliability.spares import Standby, spares_for, standby, standby_for
from phalanx.faults.reliability.storage import STATE_BYTES_PER_PARAMETER, Traffic, traffic
from phalanx.faults.reliability.strategies import NAMES, Rates, Strategy, Times, strategies
from phalanx.faults.reliability.tiers import tiered_split
from phalanx.faults.taxonomy.cause import Profile, Recovery
from phalanx.faults.taxonomy.fleet import Fleet

DETECT_MOST_S = 86_400.0


class DesignError(PhalanxError):
    """A design that cannot be asked for."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What to design for. A GPU costs `usd_gpu_h`; nodes that failed are back after `repair_hours`.

    A node has `memory_gb` of its own memory for copies and sends `network_gb_s`; storage takes `storage_gb_s` of all.
    """

    fleet: Fleet
    target: float
    profile: Profile
    parameters: float
    usd_gpu_h: float
    repair_hours: float = 24.0
    memory_gb: float = 1000.0
    network_gb_s: float = 25.0
    storage_gb_s: float = 0.0
    burst: float = 0.05
    burst_nodes: int = 4
    uplinks: int = 8
    exposed: float = 0.2
    kept: int = 3
    times: Times = field(default_factory=Times)

    def __post_init__(self) -> None:
        if not 0 < self.target < 1:
            raise DesignError(f"a target of {self.target}: expected a ratio above 0 and below 1, such as 0.95")
        for name in ("parameters", "repair_hours", "memory_gb", "network_gb_s"):
            value = getattr(self, name)
            if not (isfinite(value) and value > 0):
                raise DesignError(f"{name} is {value}: expected a number above 0")
        if not (isfinite(self.usd_gpu_h) and self.usd_gpu_h >= 0):
            raise DesignError(f"a price of {self.usd_gpu_h} USD for a GPU-hour: expected a number of at least 0")


@dataclass(frozen=True, slots=True)
class Option:
    """A strategy with what it reaches and what it costs."""

    strategy: Strategy
    ettr: float
    goodput: float
    spares: int
    usd_useful_gpu_h: float
    lost: dict[str, float]


@dataclass(frozen=True, slots=True)
class Design:
    """All of it. `chosen` is the simplest option that reaches the target, or that which comes nearest."""

    wish: Wish
    times: Times
    rates: Rates
    mttf_hours: float
    options: tuple[Option, ...]
    chosen: Option
    reached: bool
    bound: str
    detect_most_s: float | None
    copies: tuple[Choice, ...]
    best: Choice
    spares: int
    warm: int
    standby: Standby
    traffic: Traffic
    network: Reroute


STORAGE_GB_S_PER_GPU = 0.02
"""What shared storage takes where nothing is said: 200 GB/s for 10,000 GPUs."""

LEAST_SAVE_S = 0.2


def design(wish: Wish) -> Design:
    """Works out everything, in the order in which one thing rests on another."""
    fleet, profile = wish.fleet, wish.profile
    rates = profile.per_hour_by_recovery(fleet)
    per_hour = sum(rates.values())
    times = times_for(wish)
    copying = copying_for(wish, times, rates)
    best = best_copies(copying)
    node_rate = rates[Recovery.NODE] / fleet.nodes
    missing = node_rate * wish.repair_hours / (1 + node_rate * wish.repair_hours)
    ways = strategies(rates, times, missing, best.from_memory)
    spares = spares_for(fleet.nodes, node_rate, wish.repair_hours)
    network = reroute(
        rates[Recovery.REROUTE], wish.repair_hours, wish.uplinks, wish.exposed, times.reroute_s, times.restart_s
    )
    # All but templates need spares: a job that lacks a node would else stand still until that is repaired.
    options = tuple(_option(wish, each, 0 if each.name == NAMES[3] else spares) for each in ways)
    reaching = [each for each in options if each.ettr >= wish.target]
    chosen = reaching[0] if reaching else max(options, key=lambda each: each.ettr)
    warm = max(standby_for(fleet.nodes, node_rate, times.requeue_s / 3600 + times.restart_s / 3600), 1)
    storage = chosen.strategy.tiers[-1]
    return Design(
        wish,
        times,
        rates,
        1 / per_hour if per_hour else float("inf"),
        options,
        chosen,
        bool(reaching),
        _bound(chosen),
        _detect_most_s(wish, rates, times, missing, best.from_memory, chosen),
        tuple(choices(copying)),
        best,
        spares,
        warm,
        standby(
            fleet.gpus, fleet.gpus_per_node, rates[Recovery.NODE], warm, times.requeue_s + times.restart_s, times.warm_s
        ),
        traffic(
            wish.parameters, fleet.nodes, storage.interval_s, times.storage_save_s, times.storage_reload_s, wish.kept
        ),
        network,
    )


def times_for(wish: Wish) -> Times:
    """The times of the wish, those of checkpoints by their size and the rates of what they go to."""
    checkpoint_gb = wish.parameters * STATE_BYTES_PER_PARAMETER / 1e9
    rate = wish.storage_gb_s or STORAGE_GB_S_PER_GPU * wish.fleet.gpus
    shard_gb = checkpoint_gb / wish.fleet.nodes
    return replace(
        wish.times,
        storage_save_s=max(checkpoint_gb / rate, LEAST_SAVE_S),
        storage_reload_s=max(checkpoint_gb / rate, 10.0) + wish.times.memory_reload_s,
        peer_reload_s=max(shard_gb / wish.network_gb_s, 1.0) + wish.times.memory_reload_s,
    )


def copying_for(wish: Wish, times: Times, rates: Rates) -> Copying:
    """What copies in the memory of other nodes cost and save."""
    shard_gb = wish.parameters * STATE_BYTES_PER_PARAMETER / 1e9 / wish.fleet.nodes
    down_s = times.detect_s + times.restart_s
    return Copying(
        wish.fleet.nodes,
        shard_gb,
        wish.memory_gb,
        wish.network_gb_s,
        rates[Recovery.NODE] / 3600,
        # Until the job runs again and has copied once, what is lost beside it is lost with it.
        down_s + shard_gb / wish.network_gb_s,
        60.0,
        down_s + times.peer_reload_s + 30.0,
        down_s + times.storage_reload_s + 1800.0,
        wish.burst,
        wish.burst_nodes,
    )


def _option(wish: Wish, strategy: Strategy, spares: int) -> Option:
    split = tiered_split(strategy.tiers, strategy.ways)
    ettr = split.work * strategy.speed
    lost = {name: share * strategy.speed for name, share in split.parts.items() if name != "work"}
    lost["missing nodes"] = 1 - strategy.speed
    useful = goodput(ettr, wish.fleet.nodes, spares)
    return Option(strategy, ettr, useful, spares, wish.usd_gpu_h / useful if useful else float("inf"), lost)


def _bound(option: Option) -> str:
    """What most is lost to."""
    name = max(option.lost, key=lambda each: option.lost[each])
    return f"{name}, {option.lost[name]:.1%} of the time"


def _detect_most_s(
    wish: Wish, rates: Rates, times: Times, missing: float, from_memory: float, chosen: Option
) -> float | None:
    """How long failures may go unnoticed for the target to be reached by the same strategy; None if none would do."""

    def reaches(detect_s: float) -> bool:
        found = strategies(rates, replace(times, detect_s=detect_s), missing, from_memory)
        strategy = next(each for each in found if each.name == chosen.strategy.name)
        return tiered_split(strategy.tiers, strategy.ways).work * strategy.speed >= wish.target

    if not reaches(0.0):
        return None
    low, high = 0.0, DETECT_MOST_S
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if reaches(middle) else (low, middle)
    return low
