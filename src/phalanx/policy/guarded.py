"""Guards around policies from outside: what they return is looked at, and what is wrong is named.

A built-in policy is tested here and is called as it is; one that somebody else wrote is called through these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.policy.about import About
from phalanx.policy.factor import Factor, Measure
from phalanx.policy.policy import (
    Memory,
    Observe,
    ObservePlan,
    Policy,
    QueueOrder,
    Reserve,
    Targets,
    Victims,
    Wakeup,
    no_wakeup,
)
from phalanx.policy.view import Adjustment, JobView, Moment, Place, RunView, Usage
from phalanx.protocol.event import Event, TimerDue
from phalanx.protocol.plan import Plan
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
    parts: dict[str, Any] = {
        part: getattr(policy, part) if _is_ours(getattr(policy, part)) else guard(policy)
        for part, guard in GUARDS.items()
    }
    if policy.next_wakeup is not no_wakeup and not policy.adviser:
        parts["observe"] = _wakes(policy, parts["observe"], parts["next_wakeup"])
    return replace(policy, **parts)


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
    for part in GUARDS:
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

    def call(self, subject: str, *arguments: Any) -> Any:
        try:
            return self.function(*arguments)
        except PolicyError:
            raise
        except (Exception, SystemExit) as error:
            told = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise PolicyError(
                f"policy {self.policy}: {self.part}({subject}) raised {told}{where(error.__traceback__)}"
            ) from error

    def refuse(self, subject: str, returned: object, expected: str) -> PolicyError:
        return PolicyError(
            f"policy {self.policy}: {self.part}({subject}) returned {_shown(returned)}: expected {expected}"
        )


def _is_key(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(part, int) for part in value)


def _order(policy: Policy) -> Callable[[JobView, Moment], Any]:
    guard = Guard(policy.name, "order", policy.order)

    def order(job: JobView, at: Moment) -> Any:
        key = guard.call(_job(job), job, at)
        if not _is_key(key):
            raise guard.refuse(_job(job), key, KEY)
        return key

    return order


def _queue_order(policy: Policy) -> QueueOrder:
    return _of_queue(Guard(policy.name, "queue_order", policy.queue_order))


def _level_order(policy: Policy) -> QueueOrder:
    return _of_queue(Guard(policy.name, "level_order", policy.level_order))


def _of_queue(guard: Guard) -> QueueOrder:
    def order(queue: str, usage: Usage, at: Moment) -> Any:
        key = guard.call(f"queue {queue}", queue, usage, at)
        if not _is_key(key):
            raise guard.refuse(f"queue {queue}", key, KEY)
        return key

    return order


def _backfill(policy: Policy) -> Callable[[JobView, JobView], bool]:
    guard = Guard(policy.name, "backfill", policy.backfill)

    def backfill(head: JobView, job: JobView) -> bool:
        subject = f"head {head.job.id}, {_job(job)}"
        passes = guard.call(subject, head, job)
        if not isinstance(passes, bool):
            raise guard.refuse(subject, passes, TRUTH)
        return passes

    return backfill


def _victims(policy: Policy) -> Victims:
    return _making_way(Guard(policy.name, "victims", policy.victims))


def _moves(policy: Policy) -> Victims:
    return _making_way(Guard(policy.name, "moves", policy.moves))


def _reclaims(policy: Policy) -> Victims:
    return _making_way(Guard(policy.name, "reclaims", policy.reclaims))


def _making_way(guard: Guard) -> Victims:
    def makes_way(head: JobView, other: RunView, at: Moment) -> bool:
        subject = f"head {head.job.id}, job {other.job.id}"
        answer = guard.call(subject, head, other, at)
        if not isinstance(answer, bool):
            raise guard.refuse(subject, answer, TRUTH)
        return answer

    return makes_way


def _keeps(policy: Policy) -> Callable[[str, Moment], int]:
    guard = Guard(policy.name, "keeps", policy.keeps)

    def keeps(queue: str, at: Moment) -> int:
        kept = guard.call(f"queue {queue}", queue, at)
        if not isinstance(kept, int) or kept < 0:
            raise guard.refuse(f"queue {queue}", kept, "thousandths of GPUs, a whole number that is not negative")
        return kept

    return keeps


def _allows(policy: Policy) -> Callable[[JobView, Moment], int | None]:
    guard = Guard(policy.name, "allows", policy.allows)

    def allows(job: JobView, at: Moment) -> int | None:
        most = guard.call(_job(job), job, at)
        if most is None or _is_moment(most):
            return most  # type: ignore[no-any-return]
        raise guard.refuse(_job(job), most, "None or thousandths of GPUs, a whole number")

    return allows


def _shape(policy: Policy) -> Callable[[JobView, Moment], Gang]:
    guard = Guard(policy.name, "shape", policy.shape)

    def shape(job: JobView, at: Moment) -> Gang:
        gang = guard.call(_job(job), job, at)
        if not isinstance(gang, Gang) or not gang.roles:
            raise guard.refuse(_job(job), gang, "a Gang with at least one role")
        return gang

    return shape


def _sizes(policy: Policy) -> Callable[[Sequence[JobView], Moment], Mapping[str, Mapping[str, int]]]:
    guard = Guard(policy.name, "sizes", policy.sizes)

    def sizes(jobs: Sequence[JobView], at: Moment) -> Any:
        answer = guard.call(f"{len(jobs)} jobs", jobs, at)
        if not isinstance(answer, Mapping):
            raise guard.refuse(f"{len(jobs)} jobs", answer, SIZES)
        for job, roles in answer.items():
            if not isinstance(roles, Mapping) or not all(_is_moment(size) and size >= 0 for size in roles.values()):
                raise guard.refuse(f"job {job}", roles, SIZES)
        return answer

    return sizes


def _places(policy: Policy) -> Callable[[JobView, Moment], Sequence[Place]]:
    guard = Guard(policy.name, "places", policy.places)

    def places(job: JobView, at: Moment) -> Any:
        answer = guard.call(_job(job), job, at)
        if not isinstance(answer, Sequence) or not all(isinstance(each, Place) for each in answer):
            raise guard.refuse(_job(job), answer, "a sequence of Places")
        return answer

    return places


def _relocates(policy: Policy) -> Callable[[Moment], Sequence[tuple[str, str]]]:
    guard = Guard(policy.name, "relocates", policy.relocates)

    def relocates(at: Moment) -> Any:
        answer = guard.call(f"now {at.now}", at)
        if not isinstance(answer, Sequence) or not all(isinstance(each, tuple) and len(each) == 2 for each in answer):
            raise guard.refuse(f"now {at.now}", answer, "pairs of a job and a node, by name")
        return answer

    return relocates


def _adjusts(policy: Policy) -> Callable[[Memory, JobView, Moment], Mapping[str, Adjustment]]:
    guard = Guard(policy.name, "adjusts", policy.adjusts)

    def adjusts(memory: Memory, job: JobView, at: Moment) -> Any:
        answer = guard.call(_job(job), memory, job, at)
        if not isinstance(answer, Mapping) or not all(map(_is_adjustment, answer.values())):
            raise guard.refuse(_job(job), answer, ADJUSTMENT)
        return answer

    return adjusts


def _changes(policy: Policy) -> Callable[[JobView, Moment], int | None]:
    guard = Guard(policy.name, "changes", policy.changes)

    def changes(job: JobView, at: Moment) -> int | None:
        at_ms = guard.call(_job(job), job, at)
        if at_ms is None or (_is_moment(at_ms) and at_ms > at.now):
            return at_ms  # type: ignore[no-any-return]
        raise guard.refuse(_job(job), at_ms, f"None or a moment in milliseconds after now, which is {at.now}")

    return changes


def _factors(policy: Policy) -> Callable[[JobView, Moment], tuple[Factor, ...]]:
    guard = Guard(policy.name, "factors", policy.factors)

    def factors(job: JobView, at: Moment) -> tuple[Factor, ...]:
        answer = guard.call(_job(job), job, at)
        if not isinstance(answer, tuple) or not all(isinstance(each, Factor) for each in answer):
            raise guard.refuse(_job(job), answer, "a tuple of Factor")
        return answer

    return factors


def _measures(policy: Policy) -> Callable[[str, Usage, Moment], tuple[Measure, ...]]:
    guard = Guard(policy.name, "measures", policy.measures)

    def measures(queue: str, usage: Usage, at: Moment) -> tuple[Measure, ...]:
        answer = guard.call(f"queue {queue}", queue, usage, at)
        if not isinstance(answer, tuple) or not all(isinstance(each, Measure) for each in answer):
            raise guard.refuse(f"queue {queue}", answer, "a tuple of Measure")
        return answer

    return measures


def _due(policy: Policy) -> Callable[[JobView, Moment], None]:
    guard = Guard(policy.name, "due", policy.due)

    def due(job: JobView, at: Moment) -> None:
        guard.call(_job(job), job, at)
        for name, value in job.marks.items():
            if not isinstance(name, str) or not isinstance(value, int):
                raise PolicyError(
                    f"policy {policy.name}: due({_job(job)}) wrote the mark {_shown(name)}: {_shown(value)}: "
                    "expected names and whole numbers"
                )

    return due


def _observe(policy: Policy) -> Observe:
    guard = Guard(policy.name, "observe", policy.observe)

    def observe(memory: Memory, event: Event, now: int) -> None:
        guard.call(type(event).__name__, memory, event, now)

    return observe


def _observe_plan(policy: Policy) -> ObservePlan:
    guard = Guard(policy.name, "observe_plan", policy.observe_plan)

    def observe_plan(memory: Memory, plan: Plan, now: int) -> None:
        guard.call("Plan", memory, plan, now)

    return observe_plan


def _next_wakeup(policy: Policy) -> Callable[[Mapping[str, Any], int], int | None]:
    guard = Guard(policy.name, "next_wakeup", policy.next_wakeup)

    def next_wakeup(memory: Mapping[str, Any], now: int) -> int | None:
        at_ms = guard.call(f"now {now}", memory, now)
        if at_ms is None or _is_moment(at_ms):
            return at_ms  # type: ignore[no-any-return]
        raise guard.refuse(f"now {now}", at_ms, "None or a moment in milliseconds")

    return next_wakeup


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


def _job(job: JobView) -> str:
    return f"job {job.job.id}"


def _is_adjustment(value: object) -> bool:
    if not isinstance(value, Adjustment):
        return False
    beside, permille, lent_mb = value
    return (
        isinstance(beside, str | None)
        and (permille is None or (_is_moment(permille) and 0 <= permille <= 1000))
        and (lent_mb is None or (_is_moment(lent_mb) and lent_mb >= 0))
    )


def _is_moment(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


GUARDS: Mapping[str, Callable[[Policy], Callable[..., Any]]] = {
    "order": _order,
    "queue_order": _queue_order,
    "level_order": _level_order,
    "backfill": _backfill,
    "victims": _victims,
    "moves": _moves,
    "reclaims": _reclaims,
    "keeps": _keeps,
    "allows": _allows,
    "shape": _shape,
    "sizes": _sizes,
    "places": _places,
    "relocates": _relocates,
    "adjusts": _adjusts,
    "changes": _changes,
    "due": _due,
    "observe": _observe,
    "observe_plan": _observe_plan,
    "next_wakeup": _next_wakeup,
    "factors": _factors,
    "measures": _measures,
}
