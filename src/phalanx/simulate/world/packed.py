"""Packed jobs: what each keeps of its speed that runs on a device at the same time as another. No policy sees this."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.cluster.device import FULL_PERMILLE
from phalanx.workload.family import Family
from phalanx.workload.pairing import GAIN_ELSEWHERE

KEPT: dict[tuple[Family, Family], float] = {
    (Family.CONVOLUTION, Family.CONVOLUTION): 0.64,
    (Family.CONVOLUTION, Family.TRANSFORMER): 0.64,
    (Family.CONVOLUTION, Family.RECURRENT): 0.73,
    (Family.CONVOLUTION, Family.RECOMMENDATION): 0.70,
    (Family.CONVOLUTION, Family.REINFORCEMENT): 0.75,
    (Family.TRANSFORMER, Family.CONVOLUTION): 0.42,
    (Family.TRANSFORMER, Family.TRANSFORMER): 0.71,
    (Family.TRANSFORMER, Family.RECURRENT): 0.74,
    (Family.TRANSFORMER, Family.RECOMMENDATION): 0.72,
    (Family.TRANSFORMER, Family.REINFORCEMENT): 0.78,
    (Family.RECURRENT, Family.CONVOLUTION): 0.56,
    (Family.RECURRENT, Family.TRANSFORMER): 0.69,
    (Family.RECURRENT, Family.RECURRENT): 0.63,
    (Family.RECURRENT, Family.RECOMMENDATION): 0.80,
    (Family.RECURRENT, Family.REINFORCEMENT): 0.64,
    (Family.RECOMMENDATION, Family.CONVOLUTION): 0.39,
    (Family.RECOMMENDATION, Family.TRANSFORMER): 0.65,
    (Family.RECOMMENDATION, Family.RECURRENT): 0.67,
    (Family.RECOMMENDATION, Family.RECOMMENDATION): 0.29,
    (Family.RECOMMENDATION, Family.REINFORCEMENT): 0.73,
    (Family.REINFORCEMENT, Family.CONVOLUTION): 0.45,
    (Family.REINFORCEMENT, Family.TRANSFORMER): 0.72,
    (Family.REINFORCEMENT, Family.RECURRENT): 0.48,
    (Family.REINFORCEMENT, Family.RECOMMENDATION): 0.60,
    (Family.REINFORCEMENT, Family.REINFORCEMENT): 0.51,
}
"""What the first keeps of its speed beside the second, each on the whole of one GPU.

Derived from the throughputs that were measured for Gavel (Narayanan et al., OSDI 2020; simulation_throughputs.json, MIT
licence) on a V100: steps a second beside the other over those alone, the geometric mean over the models and batch sizes
of the families that ran beside each other.
"""

KEPT_ELSEWHERE = GAIN_ELSEWHERE / 2
"""The mean over all of them, for families that were not measured."""

HARM_MAX = 0.95
"""However many jobs there are beside it, a job keeps a little of its speed."""


def kept(family: Family, beside: Family) -> float:
    """What a job of one family keeps of its speed beside one of another. Dense ones are taken to be convolutions."""
    one, other = (Family.CONVOLUTION if each is Family.DENSE else each for each in (family, beside))
    return KEPT.get((one, other), KEPT_ELSEWHERE)


def packed_speed(each_kept: Sequence[float], turns: int, switch_overhead: float) -> float:
    """The speed of a job that shares its turn with jobs and keeps so much of it beside each, in a round of so many.

    It runs in their turns, too: with no other job in the round all of the time.
    """
    together = 1 + len(each_kept)
    speed = together / turns * (1.0 - switch_overhead if turns > together else 1.0)
    for part in each_kept:
        speed *= part
    return speed


def guaranteed_speed(beside: Sequence[tuple[int, float]], idle_permille: int) -> float:
    """What a guaranteed job keeps beside revocable shares, by their compute and what it keeps beside each at full.

    What of their compute goes into its idle moments costs it nothing, the rest in proportion. That is ours.
    """
    compute = sum(permille for permille, _ in beside)
    if compute <= idle_permille:
        return 1.0
    beyond = (compute - idle_permille) / compute
    harm = sum(permille / FULL_PERMILLE * (1.0 - part) for permille, part in beside)
    return 1.0 - min(beyond * harm, HARM_MAX)
