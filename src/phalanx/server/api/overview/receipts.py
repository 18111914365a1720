"""The route of receipts: the starts that submitters were told beside the real ones, by queue and policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.described import answers
from phalanx.server.api.overview import operator_models as models
from phalanx.server.api.pages import as_json
from phalanx.server.api.past import PAST
from phalanx.server.api.routes.nodes import need_eyes
from phalanx.server.store.forecasts import OUTCOMES, ToldStart, told_starts

router = APIRouter(tags=["jobs"])

MONTH_MS = 30 * 86_400_000
SHOWN_MAX = 100
TIME_MAX = 1 << 62


@router.get("/receipts", dependencies=PAST, responses=answers(models.ReceiptsModel))
async def show_receipts(
    account: SignedIn,
    context: WorkerContext,
    queue: Annotated[str, Query(max_length=1_000, description="Only of this queue and those inside.")] = "",
    since: Annotated[int | None, Query(ge=0, le=TIME_MAX, description="A month ago, if not given.")] = None,
) -> Response:
    """Show the starts that submitters were told beside the real ones, by queue and policy, and the newest of them.

    A start is `kept` if it came within a minute of what was told, or within a tenth of the wait that was told. The
    newest 20,000 jobs that were told a start are looked at.
    """
    need_eyes(account)
    since_ms = max(context.now_ms() - MONTH_MS, 0) if since is None else since
    found = [
        told
        for told in await context.read(told_starts, since_ms)
        if account.sees(told.queue) and (not queue or told.queue == queue or told.queue.startswith(f"{queue}/"))
    ]
    items = [told.shown() for told in found[:SHOWN_MAX]]
    return as_json({"since_ms": since_ms, "groups": list(_groups(found)), "items": items})


def _groups(found: Iterable[ToldStart]) -> Iterator[dict[str, Any]]:
    """What was told in each queue under each policy, and how it came."""
    kinds: dict[tuple[str, str], list[ToldStart]] = {}
    for told in found:
        kinds.setdefault((told.queue, told.policy), []).append(told)
    for (queue, policy), each in sorted(kinds.items()):
        errors = sorted(abs(told.error_ms) for told in each if told.error_ms is not None)
        outcomes = [told.outcome for told in each]
        yield {
            "queue": queue,
            "policy": policy,
            "told": len(each),
            "pending": outcomes.count(None),
            **{outcome: outcomes.count(outcome) for outcome in OUTCOMES},
            "median_error_ms": errors[len(errors) // 2] if errors else None,
            "p90_error_ms": errors[len(errors) * 9 // 10] if errors else None,
        }
