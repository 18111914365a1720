"""Guards around policies from outside: what they return is looked at, and what is wrong is named.

A built-in policy is tested here and is called as it is; one from outside is called through these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, NamedTuple

from phalanx.errors import PhalanxError
from phalanx.policy.about import About
from phalanx.policy.factor import Factor, Measure
from phalanx.policy.policy import (
    Memory,
    Observe,
    Policy,
    Reserve,
    Targets,
    Wakeup,
)
from phalanx.policy.view import Adjustment, JobView, Moment, Place, RunView
from phalanx.protocol.event import Event, TimerDue
from phalanx.workload.gang import Gang

KEY = "a tuple of whole numbers"
TRUTH = "True or False"
SIZES = "by job, the members of each role by name: whole numbers"
ADJUSTMENT = "by job, an Adjustment: a job or None, 0 to 1000 or None, and MB or None"
SHOWN_MAX = 80


class PolicyError(PhalanxError, ValueError):
    """A policy that cannot be had, or that returned or raised what it must not."""


def guarded(policy: Policy) -> Policy:
    """The policy with every part of its own checked at every call. Parts that are from phalanx stay as they are."""
    _check_fields(policy)
    parts = {part: _guarded_part(policy, part) for part in RULES}
    if policy.has_wakeups and not policy.adviser:
        parts["observe"] = _wakes(policy, parts["observe"], parts["next_wakeup"])
    return replace(policy, **parts)


def _guarded_part(policy: Policy, part: str) -> Any:
    function = getattr(policy, part)
    if _is_ours(function):
        return function
    return KINDS.get(part, Guard)(policy.name, part, function)


def where(trace: TracebackType | None) -> str:
    """The file and line at which something was raised, as ` (mine.py, line 12)`."""
    last = None
    while trace is not None:
        last, trace = trace, trace.tb_next
    if last is None:
        return ""
    file = last.tb_frame.f_code.co_filename.rpartition("/")[2]
    return f" ({file}, line {last.tb_lineno})"


def _is_ours(function: Callable[..., Any]) -> bool:
    """The engine knows some of these by name: a policy with `backfill=never` must keep exactly that."""
    return getattr(function, "__module__", "").startswith("phalanx.policy.")


def _check_fields(policy: Policy) -> None:
    for name, kind in (("targets", Targets), ("reserve", Reserve), ("about", About), ("adviser", str)):
        value = getattr(policy, name)
        if not isinstance(value, kind):
            raise PolicyError(f"policy {policy.name}: {name} is {_shown(value)}: expected {_article(kind)}")
    for part in RULES:
        if not callable(getattr(policy, part)):
            raise PolicyError(f"policy {policy.name}: {part} is {_shown(getattr(policy, part))}: expected a function")


def _article(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


@dataclass(frozen=True, slots=True)
class Guard:
    """Calls one part of a policy and tells what was wrong with it, naming policy, part and what it was asked about."""

    policy: str
    part: str
    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        rule = RULES[self.part]
        try:
            answer = self.function(*arguments)
        except PolicyError:
            raise
        except (Exception, SystemExit) as error:
            told = f"{type(error).__name__}: {error}".removesuffix(": ") + where(error.__traceback__)
            raise PolicyError(f"policy {self.policy}: {self.part}({rule.subject(*arguments)}) raised {told}") from error
        if not rule.holds(answer, *arguments):
            raise self.refuse(rule.subject(*arguments), answer, rule.expected.format(*arguments))
        return answer

    def refuse(self, subject: str, returned: object, expected: str) -> PolicyError:
        return PolicyError(
            f"policy {self.policy}: {self.part}({subject}) returned {_shown(returned)}: expected {expected}"
        )


@dataclass(frozen=True, slots=True)
class GuardOfSizes(Guard):
    """For the part that answers for all jobs at once: the job with a wrong size is named."""

    def __call__(self, *arguments: Any) -> Any:
        answer = super(GuardOfSizes, self).__call__(*arguments)
        for job, roles in answer.items():
            if not _are_sizes(roles):
                raise self.refuse(f"job {job}", roles, SIZES)
        return answer


@dataclass(frozen=True, slots=True)
class GuardOfMarks(Guard):
    """For the part that answers nothing and writes marks of the job instead."""

    def __call__(self, *arguments: Any) -> None:
        super(GuardOfMarks, self).__call__(*arguments)
        job: JobView = arguments[0]
        for name, value in job.marks.items():
            if not isinstance(name, str) or not isinstance(value, int):
                raise PolicyError(
                    f"policy {self.policy}: {self.part}({_job(job)}) wrote the mark {_shown(name)}: {_shown(value)}: "
                    "expected names and whole numbers"
                )


def _wakes(policy: Policy, observe: Observe, next_wakeup: Wakeup) -> Observe:
    """A moment that has passed may be named until the wake-up was observed. After it, it would be one without end."""

    def observe_and_look_ahead(memory: Memory, event: Event, now: int) -> None:
        observe(memory, event, now)
        if isinstance(event, TimerDue):
            at_ms = next_wakeup(memory, now)
            if at_ms is not None and at_ms <= now:
                guard = Guard(policy.name, "next_wakeup", policy.next_wakeup)
                raise guard.refuse(f"now {now}", at_ms, f"None or a moment after {now}, when it was woken")

    return observe_and_look_ahead


def _job(job: JobView, *_: object) -> str:
    return f"job {job.job.id}"


def _queue(queue: str, *_: object) -> str:
    return f"queue {queue}"


def _pair(head: JobView, other: JobView | RunView, *_: object) -> str:
    return f"head {head.job.id}, job {other.job.id}"


def _moment(at: Moment) -> str:
    return f"now {at.now}"


def _is_key(answer: object, *_: object) -> bool:
    return isinstance(answer, tuple) and all(isinstance(part, int) for part in answer)


def _is_truth(answer: object, *_: object) -> bool:
    return isinstance(answer, bool)


def _is_number(answer: object, *_: object) -> bool:
    return isinstance(answer, int) and not isinstance(answer, bool)


def _is_amount(answer: object, *_: object) -> bool:
    return isinstance(answer, int) and answer >= 0


def _is_number_or_none(answer: object, *_: object) -> bool:
    return answer is None or _is_number(answer)


def _is_later_or_none(answer: Any, job: JobView, at: Moment) -> bool:
    return answer is None or (_is_number(answer) and answer > at.now)


def _is_gang(answer: object, *_: object) -> bool:
    return isinstance(answer, Gang) and bool(answer.roles)


def _is_mapping(answer: object, *_: object) -> bool:
    return isinstance(answer, Mapping)


def _are_sizes(roles: object) -> bool:
    return isinstance(roles, Mapping) and all(_is_number(size) and size >= 0 for size in roles.values())


def _are_places(answer: object, *_: object) -> bool:
    return isinstance(answer, Sequence) and all(isinstance(each, Place) for each in answer)


def _are_pairs(answer: object, *_: object) -> bool:
    return isinstance(answer, Sequence) and all(isinstance(each, tuple) and len(each) == 2 for each in answer)


def _are_adjustments(answer: object, *_: object) -> bool:
    return isinstance(answer, Mapping) and all(map(_is_adjustment, answer.values()))


def _is_adjustment(value: object) -> bool:
    if not isinstance(value, Adjustment):
        return False
    beside, permille, lent_mb = value
    return (
        isinstance(beside, str | None)
        and (permille is None or (_is_number(permille) and 0 <= permille <= 1000))
        and (lent_mb is None or (_is_number(lent_mb) and lent_mb >= 0))
    )


def _are_factors(answer: object, *_: object) -> bool:
    return isinstance(answer, tuple) and all(isinstance(each, Factor) for each in answer)


def _are_measures(answer: object, *_: object) -> bool:
    return isinstance(answer, tuple) and all(isinstance(each, Measure) for each in answer)


def _is_anything(*_: object) -> bool:
    return True


class Rule(NamedTuple):
    """What a part is asked about, whether its answer holds, and what was expected, filled in with the arguments."""

    subject: Callable[..., str]
    holds: Callable[..., bool] = _is_anything
    expected: str = ""


RULES: Mapping[str, Rule] = {
    "order": Rule(_job, _is_key, KEY),
    "queue_order": Rule(_queue, _is_key, KEY),
    "level_order": Rule(_queue, _is_key, KEY),
    "backfill": Rule(_pair, _is_truth, TRUTH),
    "victims": Rule(_pair, _is_truth, TRUTH),
    "moves": Rule(_pair, _is_truth, TRUTH),
    "reclaims": Rule(_pair, _is_truth, TRUTH),
    "may_reclaim": Rule(_job, _is_truth, TRUTH),
    "keeps": Rule(_queue, _is_amount, "thousandths of GPUs, a whole number that is not negative"),
    "allows": Rule(_job, _is_number_or_none, "None or thousandths of GPUs, a whole number"),
    "shape": Rule(_job, _is_gang, "a Gang with at least one role"),
    "sizes": Rule(lambda jobs, _: f"{len(jobs)} jobs", _is_mapping, SIZES),
    "places": Rule(_job, _are_places, "a sequence of Places"),
    "relocates": Rule(_moment, _are_pairs, "pairs of a job and a node, by name"),
    "adjusts": Rule(lambda _, job, at: _job(job), _are_adjustments, ADJUSTMENT),
    "changes": Rule(_job, _is_later_or_none, "None or a moment in milliseconds after now, which is {1.now}"),
    "due": Rule(_job),
    "observe": Rule(lambda _, event, now: type(event).__name__),
    "observe_plan": Rule(lambda _, plan, now: "Plan"),
    "next_wakeup": Rule(lambda _, now: f"now {now}", _is_number_or_none, "None or a moment in milliseconds"),
    "factors": Rule(_job, _are_factors, "a tuple of Factor"),
    "measures": Rule(_queue, _are_measures, "a tuple of Measure"),
}

KINDS: Mapping[str, type[Guard]] = {"sizes": GuardOfSizes, "due": GuardOfMarks}
"""Parts of which more is looked at than what they return."""
