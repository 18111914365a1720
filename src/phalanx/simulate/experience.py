"""Experience: how far forecasts were off, and intervals that are corrected by it.

Runs ahead do not know all that goes wrong together: hours in which everybody says too much, users who come all at once.
So intervals are widened, or narrowed, as the starts that were forecast before came outside or inside of theirs:
conformalized quantile regression (Romano, Patterson and Candès, NeurIPS 2019), each end on its own. Waits are compared
by their logarithm: an hour more is little behind a day, and much behind a minute.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import NamedTuple

from phalanx.engine.state import State
from phalanx.simulate.forecast import Forecast, Span

REMEMBERED = 200
"""Starts of a policy that are remembered, the newest."""

ENOUGH = 15
"""Starts below which intervals stay as they were drawn: few say little of the tenth that is to lie outside."""

ENDS_PART = 0.9
"""The part of all starts that is to lie on the right side of each end of an interval: 80 % between both."""

SHORT_MS = 60_000
"""Waits shorter than this are taken to be alike."""


class Told(NamedTuple):
    """The first interval that was told of a job, and under which policy."""

    policy: str
    at_ms: int
    early_ms: int
    late_ms: int


class Miss(NamedTuple):
    """By how much, in logarithms of waits, a start came before its interval and after it; less than 0 is inside."""

    before: float
    after: float


@dataclass(slots=True)
class Experience:
    """The first intervals of jobs that wait, and the misses of those that have started, by policy."""

    told: dict[str, Told] = field(default_factory=dict)
    misses: dict[str, deque[Miss]] = field(default_factory=dict)

    def learn(self, state: State) -> None:
        """Takes note of starts that have come since. Who is gone is forgotten, and who had started before: it waits to
        start again, which is not what is remembered of jobs.
        """
        for job, told in list(self.told.items()):
            record = state.jobs.get(job)
            if record is not None and record.first_start_ms is not None and record.first_start_ms >= told.at_ms:
                kept = self.misses.setdefault(told.policy, deque(maxlen=REMEMBERED))
                kept.append(_missed(told, record.first_start_ms))
            elif record is not None and record.first_start_ms is None and record.final is None:
                continue
            del self.told[job]

    def remember(self, made: Forecast, policy: str) -> None:
        """Takes note of the intervals of all who are new in a forecast, as they were drawn. Of one without an end
        within the time that was looked ahead nobody can say how far it was off.
        """
        for job, span in made.spans.items():
            if job not in self.told and span.early_ms is not None and span.late_ms is not None and not span.open:
                self.told[job] = Told(policy, made.at_ms, span.early_ms, span.late_ms)

    def corrected(self, made: Forecast, policy: str) -> Forecast:
        """A forecast with its intervals as they should have been so far."""
        misses = list(self.misses.get(policy, ()))
        # Those who wait past the end of their interval are late by more than can be told yet.
        misses += [
            _missed(told, made.at_ms)
            for told in self.told.values()
            if told.policy == policy and told.late_ms < made.at_ms
        ]
        if len(misses) < ENOUGH:
            return made
        off = Miss(_quantile([miss.before for miss in misses]), _quantile([miss.after for miss in misses]))
        return replace(made, spans={job: _corrected(made, span, off) for job, span in made.spans.items()})


def _missed(told: Told, start_ms: int) -> Miss:
    early, late, real = (_log_wait(each_ms - told.at_ms) for each_ms in (told.early_ms, told.late_ms, start_ms))
    return Miss(early - real, real - late)


def _log_wait(wait_ms: int) -> float:
    return log(max(wait_ms, 0) + SHORT_MS)


def _quantile(values: list[float]) -> float:
    """What the wanted part of all values does not exceed, between two of them. One rank higher would be the bound that
    the paper proves; with some dozen starts it makes nearly all intervals too wide.
    """
    ranked = sorted(values)
    rank, beyond = divmod(ENDS_PART * (len(ranked) - 1), 1)
    low, high = ranked[int(rank)], ranked[min(int(rank) + 1, len(ranked) - 1)]
    return low + beyond * (high - low)


def _corrected(made: Forecast, span: Span, off: Miss) -> Span:
    """The interval with both ends moved, but to no moment before anybody can end, and not past each other."""
    if span.early_ms is None or span.open:
        return span

    def moved(at_ms: int, by: float) -> int:
        return made.at_ms + max(round(exp(_log_wait(at_ms - made.at_ms) + by)) - SHORT_MS, 0)

    middle_ms = span.middle_ms
    floor_ms = min(made.next_end_ms, span.early_ms)
    early_ms = max(moved(span.early_ms, -off.before), floor_ms)
    if middle_ms is not None:
        early_ms = min(early_ms, middle_ms)
    if span.late_ms is None:
        return replace(span, early_ms=early_ms)
    late_ms: int | None = max(moved(span.late_ms, off.after), early_ms, middle_ms or 0)
    if late_ms is not None and late_ms > made.at_ms + made.horizon_ms:
        late_ms = None
    return replace(span, early_ms=early_ms, late_ms=late_ms)
