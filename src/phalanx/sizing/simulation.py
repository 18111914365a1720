"""The queue before a service, simulated: a check of the formula, and of what it assumes of service times."""

from __future__ import annotations

from heapq import heapify, heapreplace
from random import Random

from phalanx.sizing.queue import Queue

WARM_UP = 0.1
"""The first part of the requests finds the queue emptier than later ones do, and does not count."""


def simulated_s(queue: Queue, quantile: float, requests: int, seed: int = 0, *, constant: bool = False) -> float:
    """The quantile of the latency of so many requests, with exponential service times or constant ones."""
    rng = Random(seed)
    free_at = [0.0] * queue.servers
    heapify(free_at)
    now, latencies = 0.0, []
    for _ in range(requests):
        now += rng.expovariate(queue.arrivals)
        length = 1 / queue.service if constant else rng.expovariate(queue.service)
        end = max(now, free_at[0]) + length
        heapreplace(free_at, end)
        latencies.append(end - now)
    counted = sorted(latencies[int(WARM_UP * requests) :])
    return counted[min(int(quantile * len(counted)), len(counted) - 1)]
