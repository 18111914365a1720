"""Sizes: the fewest replicas with which a service answers in time, for each point of its throughput curve.

A replica that works on c requests at a time counts as c servers of an M/M/k queue, each of which answers the c-th part
of its throughput.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp

from phalanx.sizing.curve import Point
from phalanx.sizing.queue import Queue

SERVERS_MAX = 2_000_000
"""Beyond this the recursion of Erlang's formula would take seconds, for services that no cluster has."""


@dataclass(frozen=True, slots=True)
class Wish:
    """So many requests a second, of which such a part is to be answered within a time."""

    requests_per_s: float
    latency_s: float
    quantile: float = 0.95


@dataclass(frozen=True, slots=True)
class Size:
    """The replicas that a wish takes at a point of the curve; None with the queue that is never fast enough."""

    point: Point
    replicas: int | None
    queue: Queue

    @property
    def gpus(self) -> int | None:
        """GPUs of all replicas."""
        return None if self.replicas is None else self.replicas * self.point.gpus


def sizes(points: Iterable[Point], wish: Wish) -> list[Size]:
    """For each point the size that it takes, the fewest GPUs first; those that are never fast enough last."""
    found = [size_at(point, wish) for point in points]
    return sorted(found, key=_rank)


def _rank(size: Size) -> tuple[int, float, int, int]:
    if size.gpus is None:
        return 1, 0.0, size.point.gpus, size.point.concurrency
    return 0, float(size.gpus), size.point.gpus, size.point.concurrency


def size_at(point: Point, wish: Wish) -> Size:
    """The size at one point. More replicas only shorten the wait, so the fewest are found by halving."""
    alone = queue_of(point, wish, 1)
    if exp(-wish.latency_s / point.service_s) > 1 - wish.quantile:
        return Size(point, None, alone)
    too_few, enough = 0, 1
    while not _answers(point, wish, enough):
        too_few, enough = enough, 2 * enough
        if enough * point.concurrency > SERVERS_MAX:
            return Size(point, None, alone)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if _answers(point, wish, middle) else (middle, enough)
    return Size(point, enough, queue_of(point, wish, enough))


def queue_of(point: Point, wish: Wish, replicas: int) -> Queue:
    """The queue before so many replicas."""
    return Queue(wish.requests_per_s, 1 / point.service_s, replicas * point.concurrency)


def _answers(point: Point, wish: Wish, replicas: int) -> bool:
    queue = queue_of(point, wish, replicas)
    return queue.utilisation < 1 and queue.later_than(wish.latency_s) <= 1 - wish.quantile
