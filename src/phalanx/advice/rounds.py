"""Rounds: which jobs run where until the next round, so that over time all have their shares.

Gavel orders jobs by X ÷ the fraction of time received so far, for each type by itself (Narayanan et al., OSDI 2020,
§5). Here it is one order of all jobs, by the work that X lets a job do over the work that it has done: a job is not
moved only because it is another type's turn, and work is what makes up for that. Shares change whenever a job comes
or goes, so what is kept is not what was received but what is owed: the sum of work due − work done. How long a job
would need to be given that, owed ÷ rate, puts jobs in the same order as rate ÷ (rate − owed ÷ any one span).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

OWED_MAX_ROUNDS = 10
"""More is neither owed nor to be given back: a job that was pending for a day need not run for a day at a stretch."""

GAIN_MIN = 1.2
"""So many times as fast a job must go elsewhere to be moved: it loses half a minute or so of a round."""

ROUNDING = 1e-9
"""Parts of GPUs that are missing only because parts were added up."""

ELSEWHERE = -1
"""Stands for a type where a job lies, or must lie, on GPUs of several types."""


class Place(NamedTuple):
    """What a job takes and has of a GPU type: its GPUs, its speed with them, and its share of that."""

    gpus: float
    speed: float
    share: float


@dataclass(slots=True)
class Contender:
    """A job that stands for GPUs in a round, with the types that it could run on.

    `lies_on` is the type it has devices of; None if it has none. What it is owed is in milliseconds at speed 1.
    """

    job: str
    number: int
    places: Mapping[int, Place]
    lies_on: int | None = None
    owed_ms: int = 0

    @property
    def rate(self) -> float:
        """The speed at which its shares let it go, all in all."""
        return sum(place.speed * place.share for place in self.places.values())

    @property
    def speed(self) -> float:
        """The speed at which it goes where it lies: on several types that of the slowest."""
        if self.lies_on is None:
            return 0.0
        if self.lies_on in self.places:
            return self.places[self.lies_on].speed
        return min(place.speed for place in self.places.values())

    def gains_on(self, gpu_type: int) -> bool:
        """Whether it would be worth its while to move to a type."""
        return self.places[gpu_type].speed > GAIN_MIN * self.speed

    @property
    def behind_ms(self) -> float:
        """How long its shares would take to give it what it is owed."""
        return self.owed_ms / self.rate

    def welcome(self, round_ms: int) -> None:
        """A newcomer is owed a round, so that it need not wait for as long as jobs that have just run."""
        self.owed_ms = round(round_ms * self.rate / sum(place.share for place in self.places.values()))

    def settle(self, owed_ms: float, shares: Mapping[int, float], spans: Spans) -> None:
        """Works out what is owed now, from what was owed when the last round began and the shares it gave."""
        due = sum(self.places[gpu_type].speed * share for gpu_type, share in shares.items() if gpu_type in self.places)
        owed = owed_ms + due * spans.elapsed_ms - self.speed * spans.received_ms
        most = OWED_MAX_ROUNDS * spans.round_ms * max(place.speed for place in self.places.values())
        self.owed_ms = round(min(max(owed, -most), most))


@dataclass(frozen=True, slots=True)
class Spans:
    """How long a round is, how long ago the last one began, and for how long of that a job has run."""

    round_ms: int
    elapsed_ms: int
    received_ms: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The types that jobs are targeted at, and all jobs in their order."""

    targets: dict[str, int]
    order: tuple[str, ...]


def choose(contenders: Sequence[Contender], capacity: Sequence[float], rows: Sequence[int] = ()) -> Choice:
    """Goes through all jobs, the furthest behind first, and targets each that still fits by count.

    `rows`, where places may be halves of other places, says of each of which type it takes GPUs.
    """
    room = _Room(list(capacity), rows)
    targets: dict[str, int] = {}
    in_order = sorted(contenders, key=_rank)
    for contender in in_order:
        gpu_type = _pick(contender, room)
        if gpu_type is not None:
            room.take(gpu_type, contender.places[gpu_type].gpus)
            targets[contender.job] = gpu_type
    return Choice(targets, tuple(contender.job for contender in in_order))


def _rank(contender: Contender) -> tuple[float, bool, int]:
    """The furthest behind first; of equals one that has a place already, then the earlier."""
    return (-contender.behind_ms, contender.lies_on is None, contender.number)


def _pick(contender: Contender, room: _Room) -> int | None:
    """Where it lies, if that is a type of its shares and none is much faster; else the fastest, or the larger share.

    A job with shares of several types comes to each in time: on a slow one it falls behind, and so picks earlier.
    """
    open_to_it = {
        gpu_type: place
        for gpu_type, place in contender.places.items()
        if place.share and room.has(gpu_type, place.gpus)
    }
    if contender.lies_on in open_to_it and not any(map(contender.gains_on, open_to_it)):
        return contender.lies_on
    return max(open_to_it, key=lambda gpu_type: open_to_it[gpu_type][1:], default=None)


class _Room:
    """GPUs of each type that are left in a round."""

    def __init__(self, left: list[float], rows: Sequence[int]) -> None:
        self._left = left
        self._rows = rows or range(len(left))

    def has(self, gpu_type: int, gpus: float) -> bool:
        """Whether so many are left."""
        return gpus <= ROUNDING + (sum(self._left) if gpu_type == ELSEWHERE else self._left[self._rows[gpu_type]])

    def take(self, gpu_type: int, gpus: float) -> None:
        """Takes so many; of several types first of that of which most are left."""
        most_first = sorted(range(len(self._left)), key=lambda k: -self._left[k])
        for k in most_first if gpu_type == ELSEWHERE else (self._rows[gpu_type],):
            taken = min(gpus, self._left[k])
            self._left[k] -= taken
            gpus -= taken
