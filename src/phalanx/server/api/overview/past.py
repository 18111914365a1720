"""Route of the past: which moments can be looked at."""

from __future__ import annotations

from fastapi import APIRouter, Response

from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.described import answers
from phalanx.server.api.overview import operator_models as models
from phalanx.server.api.pages import as_json
from phalanx.server.api.past import span
from phalanx.server.api.routes.nodes import need_eyes

router = APIRouter(tags=["cluster"])


@router.get("/past", responses=answers(models.PastModel))
async def show_past(account: SignedIn, context: WorkerContext) -> Response:
    """Show from when to when the past can be looked at: by `at`, which routes that read take.

    The past is worked out from the journal. Which queues you may look at is as it is now.
    """
    need_eyes(account)
    begin_ms, end_ms = await span(context)
    return as_json({"first_ms": begin_ms, "last_ms": end_ms})
