"""Route of reasons: what all pending jobs are waiting for, counted."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Any

from fastapi import APIRouter, Response

from phalanx.protocol.reason import Reason
from phalanx.server.accounts.roles import Account
from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.context import Context
from phalanx.server.api.described import answers
from phalanx.server.api.overview import models
from phalanx.server.api.pages import as_json
from phalanx.server.api.past import PAST
from phalanx.server.api.routes.nodes import need_eyes
from phalanx.server.store.reasons import Waiting, waiting
from phalanx.words.reason import REASON_WORDS

router = APIRouter(tags=["jobs"])

EVERY_S = 0.25
"""How old the counts may be: however many ask, pending jobs are counted so often and no more."""


@router.get("/reasons", dependencies=PAST, responses=answers(models.ReasonListModel))
async def list_reasons(account: SignedIn, context: WorkerContext) -> Response:
    """Count the pending jobs that you may look at by the reason why each is pending, the most GPUs first."""
    need_eyes(account)
    return as_json({"reasons": aggregated(await _waiting(context), account)})


async def _waiting(context: Context) -> list[Waiting]:
    kept = context.waiting
    async with kept.one:
        if monotonic() - kept.counted_s > EVERY_S:
            kept.groups = await context.read(waiting)
            kept.counted_s = monotonic()
    return kept.groups


def aggregated(groups: Iterable[Waiting], account: Account) -> list[dict[str, Any]]:
    """Groups that an account may look at, by their reason."""
    by_reason: dict[str, list[Waiting]] = {}
    for group in groups:
        if account.sees(group.queue):
            by_reason.setdefault(group.reason, []).append(group)
    rows = []
    for reason, found in by_reason.items():
        oldest = min(found, key=lambda group: (group.oldest_ms, group.example))
        rows.append(
            {
                "code": reason,
                "text": REASON_WORDS[Reason(reason)],
                "jobs": sum(group.jobs for group in found),
                "gpus": sum(group.gpus for group in found),
                "oldest_ms": oldest.oldest_ms,
                "example": oldest.example,
            }
        )
    return sorted(rows, key=lambda row: (-row["gpus"], -row["jobs"], row["code"]))
