"""The route of accounting: which users, queues and jobs had how much GPU time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.described import answers
from phalanx.server.api.models.jobs import UsageListModel
from phalanx.server.api.pages import as_list
from phalanx.server.api.past import PAST
from phalanx.server.refusal import Refusal
from phalanx.server.store.usage import By, Span, usage

router = APIRouter(tags=["jobs"])

WEEK_MS = 7 * 86_400_000
Moment = Annotated[int | None, Query(ge=0, le=1 << 53)]


@router.get("/usage", dependencies=PAST, responses=answers(UsageListModel))
async def show_usage(
    account: SignedIn,
    context: WorkerContext,
    by: Annotated[By, Query(description="What it is summed up by.")] = "user",
    since_ms: Annotated[Moment, Query(description="From when on; default a week ago.")] = None,
    until_ms: Annotated[Moment, Query(description="Up to when; default now.")] = None,
    user: Annotated[str, Query(max_length=200, description="Only of one user.")] = "",
    queue: Annotated[str, Query(max_length=1000, description="Only of a queue, with all below it.")] = "",
) -> Response:
    """Sum up the GPU time of jobs you may look at: what they held, what they lost, and how busy they say it was.

    An attempt holds its GPUs from its start to its end. One of another size than before counts by its newest, and a
    part of a GPU as a whole one.
    """
    now_ms = context.now_ms()
    until = min(until_ms, now_ms) if until_ms is not None else now_ms
    since = since_ms if since_ms is not None else until - WEEK_MS
    if since >= until:
        raise Refusal("invalid", f"expected since_ms before until_ms, got {since} and {until}")
    return as_list(await context.read(usage, Span(since, until, account.seen_queues, user, queue), by))
