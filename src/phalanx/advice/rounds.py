"""Rounds: which jobs run where until the next round, so that over time all have their shares.

Gavel orders jobs by X ÷ the fraction of time received so far (Narayanan et al., OSDI 2020, §5). Shares change whenever
a job comes or goes, and what was received under others says little then. So what is kept is the time owed to a job on
a type: the sum of X · time − time received. With the fraction received taken as X − owed ÷ (any one span), the order
by X ÷ fraction is the order by owed ÷ X: how long ago a job would have been where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

OWED_MAX_ROUNDS = 10
"""More is neither owed nor to be given back: who could not be placed for a day need not run for a day at a stretch."""

ELSEWHERE = -1
"""Where a job lies whose devices are not all of one type."""


@dataclass(slots=True)
class Contender:
    """A job that stands for GPUs in a round. `lies_on` is the type it has devices of; None if it has none."""

    job: str
    number: int
    gpus: tuple[float, ...]
    shares: tuple[float, ...]
    lies_on: int | None = None
    owed_ms: dict[int, int] = field(default_factory=dict)

    def settle(self, before: Mapping[int, float], owed_ms: Mapping[int, float], spans: Spans) -> None:
        """Works out what is owed now, from the shares and debts of the last round and what was received since."""
        most_ms = OWED_MAX_ROUNDS * spans.round_ms
        for gpu_type in self.types():
            received_ms = spans.received_ms if gpu_type == self.lies_on else 0
            owed = owed_ms.get(gpu_type, 0) + before.get(gpu_type, 0) * spans.elapsed_ms
            if gpu_type in before:
                owed -= received_ms
            self.owed_ms[gpu_type] = round(min(max(owed, -most_ms), most_ms))

    def welcome(self, round_ms: int) -> None:
        """A newcomer is owed a round, so that it need not wait for as long as those who have just run."""
        total = sum(self.shares)
        for gpu_type in self.types():
            self.owed_ms[gpu_type] = round(round_ms * self.shares[gpu_type] / total)

    def types(self) -> Iterator[int]:
        """Types on which it has a share."""
        return (gpu_type for gpu_type, share in enumerate(self.shares) if share)


@dataclass(frozen=True, slots=True)
class Spans:
    """How long a round is, how long ago the last one began, and for how long of that a job has run."""

    round_ms: int
    elapsed_ms: int
    received_ms: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The types that jobs are targeted at, and all jobs in their order: the targeted first, as they were chosen."""

    targets: dict[str, int]
    order: tuple[str, ...]


def choose(contenders: Sequence[Contender], capacity: Sequence[float]) -> Choice:
    """Goes through all pairs of job and type, the furthest behind first, and targets whoever still fits by count."""
    left = list(capacity)
    targets: dict[str, int] = {}
    seen: dict[str, None] = {}
    for contender, gpu_type in sorted(_pairs(contenders), key=_place):
        gpus = contender.gpus[gpu_type]
        seen[contender.job] = None
        if contender.job not in targets and gpus <= left[gpu_type]:
            left[gpu_type] -= gpus
            targets[contender.job] = gpu_type
    return Choice(targets, (*targets, *(job for job in seen if job not in targets)))


def _pairs(contenders: Sequence[Contender]) -> Iterator[tuple[Contender, int]]:
    return ((contender, gpu_type) for contender in contenders for gpu_type in contender.types())


def _place(pair: tuple[Contender, int]) -> tuple[float, bool, float, int]:
    """The furthest behind first; of equals who lies there already, then the larger share, then the earlier."""
    contender, gpu_type = pair
    share = contender.shares[gpu_type]
    behind_ms = contender.owed_ms[gpu_type] / share
    return (-behind_ms, contender.lies_on != gpu_type, -share, contender.number)
