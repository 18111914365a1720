"""What more nodes would bring: the engine decides on them as if they were there, and says which jobs start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from phalanx.backends.ray.scaling.groups import NodeGroup
from phalanx.cluster.cluster import Node
from phalanx.engine.decide.cycle import decide
from phalanx.engine.fold.apply import apply
from phalanx.engine.state.journal import Record, encode
from phalanx.engine.state.state import State
from phalanx.protocol.event import ClusterChanged, Event, JobHeld

States = Callable[[], State]
"""Gives the State of now, one that may be spoilt, each time anew."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Which pending jobs start with so many more nodes of a group, and what these cost an hour."""

    group: str
    nodes: int
    starts: tuple[str, ...]
    price_usd_h: float

    def __str__(self) -> str:
        jobs = f"job{'' if len(self.starts) == 1 else 's'} {', '.join(self.starts)}"
        nodes = f"{self.nodes} node{'' if self.nodes == 1 else 's'}"
        return f"{self.group}: {nodes} more would start {jobs}, for {self.price_usd_h:.2f} USD an hour"


@dataclass(frozen=True, slots=True)
class Expected:
    """What is counted on already: nodes that were predicted, and the jobs that will have those of spot groups."""

    nodes: tuple[Node, ...] = ()
    on_spot: tuple[str, ...] = ()

    def and_of(self, group: NodeGroup, forecast: Forecast) -> Expected:
        """With what a forecast says of a group."""
        if group.node.spot:
            return Expected(self.nodes, (*self.on_spot, *forecast.starts))
        more = tuple(group.example(number) for number in range(forecast.nodes))
        return Expected((*self.nodes, *more), self.on_spot)


def fewest(states: States, expected: Expected, group: NodeGroup, most: int, now: int) -> Forecast | None:
    """The fewest nodes of a group that start all pending jobs which `most` of them would; None where they start none.

    Spot nodes are only for jobs that may be preempted.
    """

    def starts(count: int) -> tuple[str, ...]:
        state, nodes = states(), (*expected.nodes, *(group.example(number) for number in range(count)))
        left_out = [
            job.job.id
            for job in state.jobs.values()
            if job.job.id in expected.on_spot or (group.node.spot and not job.job.preemptible)
        ]
        return _starts(state, nodes, left_out, now)

    known = starts(0)
    wanted = tuple(job for job in (starts(most) if most > 0 else ()) if job not in known)
    if not wanted:
        return None
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        begun = starts(middle)
        if all(job in begun for job in wanted):
            high = middle
        else:
            low = middle + 1
    return Forecast(group.name, low, wanted, low * group.node.price_usd_h)


def _starts(state: State, more: tuple[Node, ...], left_out: list[str], now: int) -> tuple[str, ...]:
    """The jobs that the engine would start now with these nodes beside those there are. The State is spoilt."""
    now = max(now, state.now)
    changes: list[Event] = [JobHeld(job) for job in left_out if _is_pending(state, job)]
    if more:
        changes.append(ClusterChanged(replace(state.cluster, nodes=(*state.cluster.nodes, *more))))
    for change in changes:
        entry = Record(state.seq + 1, now, change)
        apply(state, entry, encode(entry))
    return decide(state, now).starts


def _is_pending(state: State, job: str) -> bool:
    record = state.jobs[job]
    return record.attempt is None and record.final is None and not record.held
