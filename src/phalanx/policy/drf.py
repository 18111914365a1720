"""drf: dominant resource fairness over GPUs, CPUs and memory, by queue (Ghodsi et al., NSDI 2011).

The dominant share of a queue is the largest of its shares of what the cluster has. The queue with the least goes next,
so that queues that want different things all do at least as well as with a slice of everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from math import lcm
from operator import mul

from phalanx.cluster.formats.limits import QUEUE_WEIGHT_MAX
from phalanx.policy.about import About
from phalanx.policy.backfill import reserve_of
from phalanx.policy.factor import Measure
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy, Reserve
from phalanx.policy.view import Moment, Usage

EXACT = QUEUE_WEIGHT_MAX**6
"""Whole shares over the weights of three resources differ by at least one part of this, if they differ at all."""


def drf(parameters: Parameters) -> Policy:
    """`weights` are what queues are entitled to, relative to one another; 1 where none is given. `backfill` says for
    which jobs a time is reserved.
    """
    weights = parameters.per_queue("weights")
    reserve = reserve_of(parameters)
    common = lcm(*(weight.numerator for weight in weights.values()))

    def queue_order(queue: str, usage: Usage, at: Moment) -> Key:
        weight = weights.get(queue, Fraction(1))
        return (dominant(usage, at.total) * common // weight.numerator * weight.denominator,)

    def measures(queue: str, usage: Usage, at: Moment) -> tuple[Measure, ...]:
        weight, share = float(weights.get(queue, Fraction(1))), dominant_share(usage, at.total)
        return (Measure("dominant_share", share), Measure("weight", weight), Measure("for_weight", share / weight))

    return Policy(
        "drf",
        queue_order=queue_order,
        measures=measures,
        reserve=reserve,
        parameters=parameters.given,
        about=replace(ABOUT, foresight=reserve is not Reserve.NOBODY),
    )


def dominant(usage: Usage, total: Usage) -> int:
    """The dominant share times the least common multiple of all there is: exact, in whole numbers."""
    gpus, cpus, memory = usage
    of_gpus, of_cpus, of_memory = _parts(total)
    return max(gpus * of_gpus, cpus * of_cpus, memory * of_memory)


def dominant_for_weight(usages: Sequence[Usage], total: Usage, weights: Sequence[int]) -> int:
    """The sum of the greatest shares for their weights, one of each usage (weighted DRF): in whole parts of `EXACT`."""
    common = lcm(*weights)
    parts = [part * (common // weight) for part, weight in zip(_parts(total), weights, strict=True)]
    shares: list[int] = [max(map(mul, usage, parts)) for usage in usages]
    return sum(shares) * EXACT // common


def share_for_weight(usage: Usage, total: Usage, weights: Sequence[int]) -> float:
    """Likewise, as people say it."""
    amounts = zip(usage, total, weights, strict=True)
    return max((used / there / weight for used, there, weight in amounts if there), default=0.0)


def dominant_share(usage: Usage, total: Usage) -> float:
    """The dominant share as people say it, from 0 to 1."""
    return max((used / there for used, there in zip(usage, total, strict=True) if there), default=0.0)


@lru_cache(maxsize=64)
def _parts(total: Usage) -> tuple[int, ...]:
    """What one of each resource is of that multiple; 0 of what there is none."""
    scale = lcm(*(amount for amount in total if amount))
    return tuple(scale // amount if amount else 0 for amount in total)


ABOUT = About(
    summary="the queue with the smallest dominant share of GPUs, CPUs and memory first",
    algorithm="dominant resource fairness",
    decides_by="what queues use of GPUs, CPUs and memory",
    dimensions="spatial, several resources",
    preemption="no",
    starvation="no queue starves; large jobs in one may",
    placement="packed",
    source="Ghodsi et al., NSDI 2011",
)
