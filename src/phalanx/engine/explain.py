"""Explaining: why a job waits, with the counts behind it. Worked out when somebody asks; text is made at the edge."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.engine.plan import LACK_REASON, Reason
from phalanx.engine.records import JobState
from phalanx.engine.state import State
from phalanx.engine.trial import Trial
from phalanx.placement.place import refusal
from phalanx.placement.placement import Refusal


@dataclass(frozen=True, slots=True)
class Explanation:
    """One dominant reason and its evidence. `refusal` counts the nodes each predicate rules out, in turn."""

    job: str
    state: JobState
    reason: Reason | None = None
    refusal: Refusal | None = None
    behind: str = ""
    waits_for: tuple[str, ...] = ()
    not_before_ms: int | None = None
    fits_now: bool = False


def explain(state: State, job: str) -> Explanation:
    """Why a job is where it is. An unknown id raises ValueError."""
    record = state.record(job)
    reason = state.reason(job)
    if reason is None:
        return Explanation(job, record.state)
    if reason is Reason.MAKING_ROOM:
        attempt = record.attempt
        assert attempt is not None
        nodes = dict.fromkeys(booking.node for booking in attempt.bookings)
        holders = tuple(key for key in state.leaving if any(key in state.on_node.get(node, {}) for node in nodes))
        return Explanation(job, record.state, reason, waits_for=holders)
    if reason is Reason.PREPARING:
        return Explanation(job, record.state, reason)
    if reason in (Reason.DEPENDENCY, Reason.DEPENDENCY_FAILED):
        return Explanation(job, record.state, reason, waits_for=tuple(other.job for other in record.job.after))
    if reason is Reason.BEGIN_TIME:
        return Explanation(job, record.state, reason, not_before_ms=record.job.begin_ms)
    if reason is Reason.BACKOFF:
        return Explanation(job, record.state, reason, not_before_ms=record.not_before_ms)
    if record.parked is not None:
        return Explanation(job, record.state, reason)
    return _lacking(state, job, reason)


def _lacking(state: State, job: str, reason: Reason) -> Explanation:
    record = state.jobs[job]
    with Trial(state) as trial:
        fits = trial.seat(record) is not None
    evidence = None if fits else refusal(state.fit, record.asked)
    if reason is Reason.UNDECIDED and evidence is not None:
        reason = LACK_REASON[evidence.lack]
    behind = state.head if reason is Reason.BEHIND else ""
    return Explanation(job, record.state, reason, evidence, behind, fits_now=fits)
