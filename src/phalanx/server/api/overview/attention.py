"""Routes of what stands out now: jobs that need attention, and how scattered the free GPUs are."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response

from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.described import answers
from phalanx.server.api.overview import models
from phalanx.server.api.pages import as_json
from phalanx.server.api.past import PAST
from phalanx.server.api.routes.nodes import need_eyes
from phalanx.server.store import jobs as table
from phalanx.server.store.jobs import Filters, Page

router = APIRouter()

FAILED_MS = 86_400_000
"""A job that failed longer ago needs no attention any more."""

FAILED_MAX = 50
KINDS = ("failing", "stuck", "idle_gpus", "deadline_at_risk", "past_max_wait", "never_fits")
"""What may be the matter, the most pressing first."""


@router.get("/attention", dependencies=PAST, tags=["jobs"], responses=answers(models.AttentionModel))
async def list_attention(
    account: SignedIn,
    context: WorkerContext,
    limit: Annotated[int, Query(ge=1, le=500, description="The most items.")] = 100,
) -> Response:
    """List the jobs that you may look at and that need attention, the most pressing first.

    Those that failed within a day or fail again and again; that took no step, or left their GPUs idle, for ten minutes;
    whose deadline is at risk; that wait longer than they may; and that no part of the cluster could ever hold.
    """
    need_eyes(account)
    seen = [item for item in context.board.outlook(context).attention if account.sees(item.queue)]
    filters = Filters(queues=account.seen_queues, states=["failed"])
    failed, _ = await context.read(table.page, filters, Page(None, True, FAILED_MAX))
    after_ms = context.now_ms() - FAILED_MS
    items = [_failed(item) for item in failed if (item["ended_ms"] or 0) > after_ms]
    items += [msgspec.structs.asdict(item) for item in seen]
    items.sort(key=lambda item: KINDS.index(item["kind"]))
    return as_json({"items": items[:limit], "total": len(items)})


@router.get("/fragmentation", dependencies=PAST, tags=["cluster"], responses=answers(models.FragmentationModel))
async def show_fragmentation(account: SignedIn, context: WorkerContext) -> Response:
    """Show the largest gang of single GPUs that could start now: in the whole cluster, and in one domain of each level.

    It is as of `now_ms`, at most a few seconds ago.
    """
    need_eyes(account)
    outlook = context.board.outlook(context)
    levels = [
        {"level": each.level, "largest_gang_gpus": each.largest_gang_gpus, "free": each.free, "domain": each.domain}
        for each in outlook.levels
    ]
    return as_json({"now_ms": outlook.now_ms, "levels": levels})


def failure_words(exit_code: int | None, end_reason: str) -> str:
    """How a job failed: with its code only where the reason does not begin with how a task ended."""
    is_told = exit_code is None or end_reason.startswith(("exit ", "signal "))
    code = "" if is_told else f" with exit code {exit_code}"
    return f"it failed{code}{f': {end_reason}' if end_reason else ''}"


def _failed(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "failing",
        "job": item["id"],
        "name": item["name"],
        "queue": item["queue"],
        "user": item["user"],
        "text": failure_words(item["exit_code"], item["end_reason"]),
        "since_ms": item["ended_ms"],
    }
