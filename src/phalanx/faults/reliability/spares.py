"""Spare nodes: how many are needed, and what waiting for one costs beside keeping it warm."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, lgamma, log, log1p

from phalanx.errors import PhalanxError


class SparesError(PhalanxError):
    """A chance that is none."""


def binomial_quantile(trials: int, chance: float, quantile: float) -> int:
    """The least number that a binomial count exceeds with a chance of at most 1 − quantile."""
    if not (0 <= chance <= 1 and 0 < quantile < 1):
        raise SparesError(f"a chance of {chance} and a quantile of {quantile}: expected both between 0 and 1")
    if chance in (0, 1) or not trials:
        return trials if chance == 1 else 0
    summed = 0.0
    for count in range(trials + 1):
        summed += exp(_log_of(trials, count, chance))
        if summed >= quantile:
            return count
    return trials


def _log_of(trials: int, count: int, chance: float) -> float:
    ways = lgamma(trials + 1) - lgamma(count + 1) - lgamma(trials - count + 1)
    return ways + count * log(chance) + (trials - count) * log1p(-chance)


def down_share(per_node_hour: float, repair_hours: float) -> float:
    """The part of its time a node is in repair, of fail and repair in turn."""
    return per_node_hour * repair_hours / (1 + per_node_hour * repair_hours)


def spares_for(nodes: int, per_node_hour: float, repair_hours: float, quantile: float = 0.99) -> int:
    """Spares with which the job has all its nodes for that part of the time: nodes and spares fail alike."""
    down = down_share(per_node_hour, repair_hours)
    spares = 0
    # More spares can fail too, so that the number is raised until it is enough for itself.
    while (needed := binomial_quantile(nodes + spares, down, quantile)) > spares:
        spares = needed
    return spares


def standby_for(nodes: int, per_node_hour: float, refill_hours: float, quantile: float = 0.99) -> int:
    """Warm nodes so that those lost while one is replaced are no more, at that quantile (ByteRobust, SOSP 2025)."""
    return binomial_quantile(nodes, -expm1(-per_node_hour * refill_hours), quantile)


@dataclass(frozen=True, slots=True)
class Standby:
    """Warm standby beside requeueing, in GPU-hours of a day."""

    failures: float
    requeue_gpu_h: float
    warm_gpu_h: float
    idle_gpu_h: float

    @property
    def saved_gpu_h(self) -> float:
        """What warm standby saves in a day; below 0 it costs more than it brings."""
        return self.requeue_gpu_h - self.warm_gpu_h - self.idle_gpu_h


def standby(gpus: int, gpus_per_node: int, per_hour: float, warm: int, requeue_s: float, warm_s: float) -> Standby:
    """What so many warm nodes cost and save: each failure stops all GPUs until the job goes on."""
    failures = per_hour * 24
    return Standby(
        failures,
        failures * requeue_s / 3600 * gpus,
        failures * warm_s / 3600 * gpus,
        warm * gpus_per_node * 24.0,
    )
