"""Positions: the place of a job in the order, and of its queue among those beside it, with what is compared."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from phalanx.cluster.queues import ancestors
from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.state import State
from phalanx.policy.factor import Measure
from phalanx.policy.policy import Key


@dataclass(frozen=True, slots=True)
class Level:
    """A queue among those that lie beside it and have pending jobs: its `place`, `of` how many, and its `measures`.

    Where the policy does not compare queues by themselves, it has no place.
    """

    queue: str
    place: int | None
    of: int
    measures: tuple[Measure, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """The `place` of a job among the pending jobs of its `queue`, or among all of them where that is empty.

    `levels` are its queue and those it lies in, from the outside to the inside. Queues change places as they get and
    give back devices. So it is unknown how many jobs of another queue go before a job.
    """

    queue: str
    place: int
    of: int
    levels: tuple[Level, ...] = ()


def position(state: State, record: JobRecord) -> Position | None:
    """That of a pending job; None for other jobs, and where cells say which comes next."""
    if record.queued is None or state.cells is not None:
        return None
    by_queue = state.policy.orders_queues and not record.overdue
    here = (record.queued, record.job.id)
    jobs, kinds = state.jobs, list(state.classes.values())
    # Tens of thousands of kinds: what is done for each of them must be little.
    queues = [jobs[kind.jobs[0][1]].job.queue for kind in kinds]
    if by_queue:
        kinds = [kind for kind, queue in zip(kinds, queues, strict=True) if queue == record.job.queue]
    before = sum(bisect_left(kind.jobs, here) for kind in kinds)
    pending = sum(len(kind.jobs) for kind in kinds)
    levels = _levels(state, record.job.queue, dict.fromkeys(queues))
    return Position(record.job.queue if by_queue else "", before + 1, pending, levels)


def _levels(state: State, queue: str, waiting: Iterable[str]) -> tuple[Level, ...]:
    policy = state.policy
    if not policy.has_measures and not policy.orders_queues:
        return ()
    if not state.quotas or policy.orders_all_queues:
        return (_level(state, queue, waiting),)
    beside: dict[str, dict[str, None]] = {}
    for each in waiting:
        for path in ancestors(each):
            if path:
                beside.setdefault(path.rpartition("/")[0], {})[path] = None
    paths = [path for path in ancestors(queue) if path]
    return tuple(_level(state, path, beside[path.rpartition("/")[0]]) for path in reversed(paths))


def _level(state: State, path: str, beside: Iterable[str]) -> Level:
    measures = state.policy.measures(path, state.usage(path), state)
    others = list(beside)
    if not state.policy.orders_queues:
        return Level(path, None, len(others), measures)
    own = _key(state, path)
    return Level(path, 1 + sum(_key(state, other) < own for other in others), len(others), measures)


def _key(state: State, path: str) -> Key:
    policy = state.policy
    order = policy.level_order if policy.orders_levels else policy.queue_order
    return order(path, state.usage(path), state)
