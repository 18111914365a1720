"""Timelines: what a job was doing from its submission on, and what there was on a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from phalanx.protocol.reason import Reason
from phalanx.server.accounts.roles import Account
from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.described import answers
from phalanx.server.api.overview import models
from phalanx.server.api.pages import as_json
from phalanx.server.api.past import PAST
from phalanx.server.api.routes.jobs import Ref, find
from phalanx.server.api.routes.nodes import Name, need_eyes
from phalanx.server.refusal import Refusal
from phalanx.server.store import jobs as job_table
from phalanx.server.store import nodes as node_table
from phalanx.server.store.past import HealthChange, PhaseChange, Stay, healths_of, phases_of, stays_on
from phalanx.words.reason import REASON_WORDS

router = APIRouter()

DAY_MS = 86_400_000
TIME_MAX = 1 << 62

SHOWN = {
    "suspending": "suspended",
    "suspended": "suspended",
    "resuming": "suspended",
    "stopping": "stopping",
    "claimed": "starting",
    "starting": "starting",
}
"""Phases as a timeline shows them; all the rest are running."""

Segment = dict[str, Any]


@router.get("/jobs/{job}/timeline", dependencies=PAST, tags=["jobs"], responses=answers(models.JobTimelineModel))
async def show_job_timeline(job: Ref, account: SignedIn, context: WorkerContext) -> Response:
    """Show what a job has been doing since it was submitted, one segment after another, with the work that was lost."""
    item = await find(job, account, context)
    attempts = await context.read(job_table.attempts_of, item["id"])
    phases = await context.read(phases_of, item["id"])
    return as_json(
        {"job": item["id"], "now_ms": context.now_ms(), "segments": list(segments_of(item, attempts, phases))}
    )


@router.get("/nodes/{name}/timeline", dependencies=PAST, tags=["cluster"], responses=answers(models.NodeTimelineModel))
async def show_node_timeline(
    name: Name,
    account: SignedIn,
    context: WorkerContext,
    since: Annotated[int | None, Query(ge=0, le=TIME_MAX, description="A day before `until`, if not given.")] = None,
    until: Annotated[int | None, Query(ge=0, le=TIME_MAX, description="Now, if not given.")] = None,
    limit: Annotated[int, Query(ge=1, le=5_000, description="The most attempts; the newest are shown.")] = 1_000,
) -> Response:
    """Show what there was on a node: how healthy it was, and the attempts that had its devices.

    Attempts of jobs that you may not look at are shown without names.
    """
    need_eyes(account)
    node = await context.read(node_table.one, name)
    if node is None:
        raise Refusal("not_found", f"there is no node {name!r}")
    end_ms = context.now_ms() if until is None else until
    start_ms = end_ms - DAY_MS if since is None else since
    if start_ms > end_ms:
        raise Refusal("invalid", f"expected since to be before until, got {start_ms} and {end_ms}")
    stays = await context.read(stays_on, name, end_ms, limit)
    healths = await context.read(healths_of, name, limit)
    return as_json(
        {
            "node": name,
            "start_ms": start_ms,
            "end_ms": end_ms,
            "healths": [each for each in _healths(healths) if _is_in(each, start_ms, end_ms)],
            "attempts": [each for stay in stays if _is_in(each := _attempt(stay, account), start_ms, end_ms)],
        }
    )


def segments_of(
    item: dict[str, Any], attempts: Sequence[dict[str, Any]], phases: Sequence[PhaseChange]
) -> Iterator[Segment]:
    """What a job has been doing, one segment after another; the last is open while the job is not over."""
    at_ms = item["submitted_ms"]
    for attempt in attempts:
        if attempt["created_ms"] > at_ms:
            yield _segment(attempt["number"], "queued", at_ms, attempt["created_ms"], [], "")
        yield from _of_attempt(attempt, [each for each in phases if each.number == attempt["number"]])
        at_ms = attempt["ended_ms"]
        if at_ms is None:
            return
    number = len(attempts) + 1
    if item["ended_ms"] is None:
        yield _segment(number, "queued", at_ms, None, [], _reason_words(item["reason"]))
    elif item["ended_ms"] > at_ms:
        yield _segment(number, "queued", at_ms, item["ended_ms"], [], item["end_reason"])


def _of_attempt(attempt: dict[str, Any], phases: Sequence[PhaseChange]) -> Iterator[Segment]:
    """The segments of an attempt: where it came to which phase, and from when on its work was lost."""
    end_ms = attempt["ended_ms"]
    changes = [(attempt["created_ms"], "starting", "")]
    if attempt["started_ms"] is not None:
        changes.append((max(attempt["started_ms"], attempt["created_ms"]), "running", ""))
    changes += [(each.at_ms, SHOWN.get(each.phase, "running"), _phase_words(each.phase)) for each in phases]
    if end_ms is not None and attempt["lost_ms"] and attempt["started_ms"] is not None:
        lost_ms = min(attempt["lost_ms"], end_ms - attempt["started_ms"])
        changes = [each for each in changes if each[0] < end_ms - lost_ms]
        changes.append((end_ms - lost_ms, "lost_work", "nothing of it was saved"))
    changes.sort(key=lambda change: change[0])
    ends = [*(change[0] for change in changes[1:]), end_ms]
    for (start_ms, state, text), until_ms in zip(changes, ends, strict=True):
        if until_ms is None or until_ms > start_ms or len(changes) == 1:
            is_last = until_ms == end_ms and end_ms is not None
            told = ", ".join(part for part in (text, _ending(attempt) if is_last else "") if part)
            yield _segment(attempt["number"], state, start_ms, until_ms, attempt["nodes"], told)


def _segment(attempt: int, state: str, start_ms: int, end_ms: int | None, nodes: list[str], text: str) -> Segment:
    return {
        "attempt": attempt,
        "state": state,
        "start_ms": start_ms,
        "end_ms": end_ms,
        "nodes": nodes,
        "text": text,
    }


def _phase_words(phase: str) -> str:
    return "it is being resized" if phase == "resizing" else ""


def _ending(attempt: dict[str, Any]) -> str:
    outcome, reason = attempt["outcome"] or "", attempt["reason"]
    return f"{outcome}: {reason}" if reason and reason != outcome else outcome


def _reason_words(reason: str | None) -> str:
    return REASON_WORDS.get(Reason(reason), reason) if reason else ""


def _healths(changes: Sequence[HealthChange]) -> Iterator[Segment]:
    """How healthy a node was. Before the first change it was healthy."""
    known = [HealthChange(0, "healthy", ""), *changes]
    ends = [*(change.at_ms for change in changes), None]
    for change, end_ms in zip(known, ends, strict=True):
        yield {"health": change.health, "reason": change.reason, "start_ms": change.at_ms, "end_ms": end_ms}


def _attempt(stay: Stay, account: Account) -> dict[str, Any]:
    told: dict[str, Any] = {
        "job": None,
        "name": "",
        "attempt": None,
        "start_ms": stay.created_ms,
        "running_ms": stay.started_ms,
        "end_ms": stay.ended_ms,
        "state": SHOWN.get(stay.phase, "running") if stay.ended_ms is None else "ended",
        "outcome": None,
    }
    if account.sees(stay.queue):
        told |= {"job": stay.job, "name": stay.name, "attempt": stay.number, "outcome": stay.outcome}
    return told


def _is_in(segment: Segment, start_ms: int, end_ms: int) -> bool:
    """Whether a segment and a time have something in common."""
    return segment["start_ms"] <= end_ms and (segment["end_ms"] is None or segment["end_ms"] >= start_ms)
