"""Why the attempts at a job ended before their work was done, and which of it came first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from phalanx.engine.state.records import StopReason
from phalanx.server.postmortem.history import History, NodeTrouble
from phalanx.simulate.studies.table import duration_text

BEFORE_MS, AFTER_MS = 300_000, 60_000
"""How long before and after the end of an attempt the trouble of one of its nodes may be told of to have caused it."""

ASKED = ("cancelled", "requeued", "suspended")
"""Reasons of users, not of the cluster."""

Attempt = Mapping[str, Any]


class Ending(NamedTuple):
    """The end of an attempt before its work was done, and by what: hardware, preempted, job, asked, other."""

    attempt: int
    at_ms: int
    kind: str
    text: str
    node: str
    lost_ms: int | None
    lost_gpu_ms: int | None


def endings(history: History) -> list[Ending]:
    """All of them, in their order."""
    return [
        _ending(history, each)
        for each in history.attempts
        if each["ended_ms"] is not None and each["outcome"] != "succeeded"
    ]


def _ending(history: History, attempt: Attempt) -> Ending:
    trouble = _trouble_of(history, attempt)
    kind = _kind(attempt, trouble)
    node = trouble.node if trouble is not None and kind == "hardware" else ""
    lost = (attempt["lost_ms"], attempt["lost_gpu_ms"])
    return Ending(attempt["number"], attempt["ended_ms"], kind, _words(history, attempt, trouble, kind), node, *lost)


def _kind(attempt: Attempt, trouble: NodeTrouble | None) -> str:
    reason = attempt["reason"]
    if reason.startswith(ASKED):
        return "asked"
    if reason == StopReason.PREEMPTED.value:
        return "preempted"
    if trouble is not None or reason == StopReason.HARDWARE.value:
        return "hardware"
    return "job" if attempt["outcome"] == "failed" else "other"


def _trouble_of(history: History, attempt: Attempt) -> NodeTrouble | None:
    """The trouble of a node of the attempt that is nearest to its end."""
    end_ms = attempt["ended_ms"]
    near = [
        each
        for each in history.troubles
        if each.node in attempt["nodes"]
        and each.health in ("failed", "suspect")
        and -BEFORE_MS <= each.at_ms - end_ms <= AFTER_MS
    ]
    return min(near, key=lambda each: abs(each.at_ms - end_ms), default=None)


def _words(history: History, attempt: Attempt, trouble: NodeTrouble | None, kind: str) -> str:
    ran = duration_text(history.ran_ms(attempt) / 1000)
    said = attempt["reason"] or attempt["outcome"] or "it ended"
    code = attempt["exit_code"]
    exit_words = f" (exit {code})" if code and str(code) not in said else ""
    told = f"attempt {attempt['number']} ended after {ran}: {said}{exit_words}"
    if trouble is None or kind != "hardware":
        return told
    away_ms = attempt["ended_ms"] - trouble.at_ms
    when = f"{duration_text(abs(away_ms) / 1000)} {'before' if away_ms >= 0 else 'after'}"
    return (
        f"{told}; node {trouble.node} became {trouble.health} {when}{f': {trouble.reason}' if trouble.reason else ''}"
    )


def first_cause(history: History, found: list[Ending]) -> str:
    """What came first of all that went wrong, in a sentence without its point."""
    unasked = [each for each in found if each.kind != "asked"]
    if unasked:
        return unasked[0].text
    job = history.job
    if job["state"] == "failed":
        return job["end_reason"] or "it failed"
    if job["state"] == "cancelled":
        return job["end_reason"] or "it was cancelled"
    if job["started_ms"] is None:
        return "it has not started"
    return "nothing went wrong"
