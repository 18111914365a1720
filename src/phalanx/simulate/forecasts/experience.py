"""Experience: how far forecasts were off, and intervals that are corrected by it.

Runs ahead do not know all that goes wrong together: hours in which all jobs say too much, users that come all at once.
So intervals are widened, or narrowed, as the starts that were forecast before came outside or inside of theirs:
conformalized quantile regression (Romano, Patterson and Candès, NeurIPS 2019), each end on its own. Waits are compared
by their logarithm: an hour more is little behind a day, and much behind a minute.

Intervals that end within the time that was looked ahead and those that do not are corrected by their like (Mondrian
conformal prediction: Vovk, Gammerman and Shafer, 2005): the latter are of jobs that wait long, and miss otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import NamedTuple

import msgspec

from phalanx.engine.state.state import State
from phalanx.policy.policy import Policy
from phalanx.simulate.forecasts.forecast import Forecast, Span

REMEMBERED = 200
"""Starts of a policy that are remembered, the newest."""

ENDS_PART = 0.9
"""The part of all starts that is to lie on the right side of each end of an interval: 80 % between both."""

ENOUGH = 9
"""Starts of which the farthest is an end that `ENDS_PART` of others do not pass; fewer tell of no such end."""

SHORT_MS = 60_000
"""Waits shorter than this are taken to be alike."""


class Told(NamedTuple):
    """The first interval that was told of a job, and under which policy; without a `late_ms` it has no end."""

    policy: str
    at_ms: int
    early_ms: int
    late_ms: int | None


class Miss(NamedTuple):
    """By how much, in logarithms of waits, a start came before its interval and after it; less than 0 is inside. Of one
    without an end it is unknown how far it was off there.
    """

    before: float
    after: float | None


@dataclass(slots=True)
class Experience:
    """The first intervals of jobs that wait, and the misses of those that have started, by policy."""

    told: dict[str, Told] = field(default_factory=dict)
    misses: dict[str, list[Miss]] = field(default_factory=dict)

    def learn(self, state: State) -> None:
        """Takes note of starts that have come since. Jobs that are gone are forgotten, and those that had started
        before: they wait to start again, which is not what is remembered.
        """
        for job, told in list(self.told.items()):
            record = state.jobs.get(job)
            if record is not None and record.first_start_ms is not None and record.first_start_ms >= told.at_ms:
                kept = self.misses.setdefault(told.policy, [])
                kept.append(_missed(told, record.first_start_ms))
                del kept[:-REMEMBERED]
            elif record is not None and record.first_start_ms is None and record.final is None:
                continue
            del self.told[job]

    def remember(self, made: Forecast, policy: str) -> None:
        """Takes note of the intervals of jobs that are new in a forecast, as they were drawn. Of a job without any
        nothing can be learned.
        """
        for job, span in made.spans.items():
            early_ms = made.not_before_ms(job)
            if job not in self.told and early_ms is not None and not span.open:
                self.told[job] = Told(policy, made.at_ms, early_ms, span.late_ms)

    def corrected(self, made: Forecast, policy: Policy) -> Forecast:
        """A forecast with its intervals as they should have been so far.

        Where too few starts tell how far intervals are off, they begin at the first moment at which anything can come
        free; where the policy lets later jobs delay those that wait, no end is told: as they are drawn such ends are
        not to be relied on.
        """
        misses = [*self.misses.get(policy.spec, ()), *self._overdue(policy.spec, made.at_ms)]
        pooled = bound([miss.before for miss in misses])
        closed = _Off(
            _first(bound([miss.before for miss in misses if miss.after is not None]), pooled),
            bound([miss.after for miss in misses if miss.after is not None]),
        )
        endless = _Off(_first(bound([miss.before for miss in misses if miss.after is None]), pooled), None)
        is_unknown = closed.after is None and policy.overtakes
        spans: dict[str, Span] = {}
        for job, span in made.spans.items():
            moved = _corrected(made, span, endless if span.late_ms is None else closed)
            spans[job] = _without_end(moved) if is_unknown else moved
        return replace(made, spans=spans)

    def _overdue(self, policy: str, now_ms: int) -> list[Miss]:
        """Jobs that are pending past the end of their interval are late by more than can be told yet."""
        late = (each for each in self.told.values() if each.policy == policy and each.late_ms is not None)
        return [_missed(told, now_ms) for told in late if told.late_ms is not None and told.late_ms < now_ms]


_decoder = msgspec.json.Decoder(dict[str, list[Miss]])


def encoded(experience: Experience) -> bytes:
    """What starts have taught, for a file. What was told of jobs that still wait is not in it."""
    return msgspec.json.encode(experience.misses)


def decoded(content: bytes) -> Experience:
    """The like, from a file; what cannot be read has taught nothing."""
    try:
        return Experience(misses=_decoder.decode(content))
    except (msgspec.DecodeError, msgspec.ValidationError):
        return Experience()


class _Off(NamedTuple):
    """By how much intervals begin too late and end too soon; None where it is unknown."""

    before: float | None
    after: float | None


def _missed(told: Told, start_ms: int) -> Miss:
    early, real = _log_wait(told.early_ms - told.at_ms), _log_wait(start_ms - told.at_ms)
    return Miss(early - real, None if told.late_ms is None else real - _log_wait(told.late_ms - told.at_ms))


def _log_wait(wait_ms: int) -> float:
    return log(max(wait_ms, 0) + SHORT_MS)


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def bound(values: Sequence[float]) -> float | None:
    """What one more value, drawn like these, does not exceed with a chance of `ENDS_PART`: the one of that rank among
    all of them and the new one, or between two. None of so few that it could be beyond all of them.
    """
    ranked = sorted(values)
    rank, beyond = divmod(ENDS_PART * (len(ranked) + 1), 1)
    if len(ranked) < ENOUGH:
        return None
    low, high = ranked[int(rank) - 1], ranked[min(int(rank), len(ranked) - 1)]
    return low + beyond * (high - low)


def _corrected(made: Forecast, span: Span, off: _Off) -> Span:
    """The interval with both ends moved, but to no moment before any job can end, and not past each other.

    Where it is unknown how far beginnings are off, it begins when the first running job can end.
    """
    early_ms = made.at_ms + made.horizon_ms if span.early_ms is None else span.early_ms
    if span.open:
        return span
    if off.before is None and span.early_ms is not None:
        early_ms = min(max(made.next_end_ms, made.at_ms), early_ms)
    if off.before is not None:
        early_ms = max(_moved(made, early_ms, -off.before), min(made.next_end_ms, early_ms))
        early_ms = min(early_ms, made.at_ms + made.horizon_ms if span.middle_ms is None else span.middle_ms)
    is_told = span.early_ms is not None or early_ms < made.at_ms + made.horizon_ms
    late_ms = span.late_ms
    if late_ms is not None and off.after is not None:
        late_ms = max(_moved(made, late_ms, off.after), early_ms, span.middle_ms or 0)
    return replace(span, early_ms=early_ms if is_told else None, late_ms=late_ms)


def _moved(made: Forecast, at_ms: int, by: float) -> int:
    return made.at_ms + max(round(exp(_log_wait(at_ms - made.at_ms) + by)) - SHORT_MS, 0)


def _without_end(span: Span) -> Span:
    """The interval with its end open; one that is beyond the time looked ahead has none."""
    return replace(span, late_ms=None, open=True) if span.late_ms is not None else span
