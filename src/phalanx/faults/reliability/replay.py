"""The failures of Llama 3's training once more: what each strategy would have made of the same counts.

Within the 54 days the counted interruptions come at moments by chance, which is what a Poisson process does once its
count is known. Storage takes the optimizer's state of 405 billion parameters at the rate that is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from phalanx.faults.reliability.monte_carlo import Booked
from phalanx.faults.reliability.strategies import Strategy, Times, strategies
from phalanx.faults.reliability.tiers import Failure, Way, replayed, tiered_split
from phalanx.faults.taxonomy.cause import Recovery
from phalanx.faults.taxonomy.published import LLAMA_COUNTS, LLAMA_DAYS, LLAMA_NODES

SECONDS = LLAMA_DAYS * 86_400.0
REPAIR_HOURS = 24.0


@dataclass(frozen=True, slots=True)
class Replayed:
    """A strategy, its ratio in closed form, and that of the mean over replays; `booked` is of the first of them."""

    strategy: Strategy
    closed: float
    replayed: float
    low: float
    high: float
    booked: Booked

    @property
    def days(self) -> float:
        """Days of training that were of use."""
        return self.replayed * LLAMA_DAYS


def llama_rates() -> dict[Recovery, float]:
    """Interruptions in an hour by what they need."""
    hours = LLAMA_DAYS * 24
    return {
        each: sum(count for _, _, recovery, _, count in LLAMA_COUNTS if recovery is each) / hours for each in Recovery
    }


def replay_llama(times: Times | None = None, seeds: int = 20) -> list[Replayed]:
    """All four strategies through the same failures."""
    rates = llama_rates()
    missing = rates[Recovery.NODE] * REPAIR_HOURS / LLAMA_NODES
    return [_replayed(each, seeds) for each in strategies(rates, times or Times(), missing)]


def _replayed(strategy: Strategy, seeds: int) -> Replayed:
    runs = [replayed(strategy.tiers, _failures(strategy.ways, seed), SECONDS) for seed in range(seeds)]
    ratios = [run.work / SECONDS * strategy.speed for run in runs]
    closed = tiered_split(strategy.tiers, strategy.ways).work * strategy.speed
    return Replayed(strategy, closed, sum(ratios) / seeds, min(ratios), max(ratios), runs[0])


def _failures(ways: Sequence[Way], seed: int) -> list[Failure]:
    """As many of each way as were counted, at moments by chance: the same ones for all strategies, by the seed."""
    chance = Random(f"llama {seed}")
    whole = sum(count for *_, count in LLAMA_COUNTS)
    moments = [chance.uniform(0, SECONDS) for _ in range(whole)]
    kinds = [way for way in ways for _ in range(round(way.per_s * SECONDS))]
    chance.shuffle(kinds)
    return sorted(zip(moments, kinds, strict=True), key=lambda each: each[0])
