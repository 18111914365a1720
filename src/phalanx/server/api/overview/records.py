"""The route of the journal: pages of records, the newest first, by what they are and which job they are about."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from sqlalchemy import Connection

from phalanx.server.accounts.roles import Account
from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.described import LIST, answers
from phalanx.server.api.overview import operator_models as models
from phalanx.server.api.pages import Cursor, as_list, place_of
from phalanx.server.api.past import PAST
from phalanx.server.api.routes.jobs import find
from phalanx.server.api.routes.nodes import need_eyes
from phalanx.server.api.streams.records import shown_to
from phalanx.server.store.journal import Wanted, first_after, newest_before

router = APIRouter(tags=["events"])

LIMIT_MAX = 500
TIME_MAX = 1 << 62


@router.get("/journal", dependencies=PAST, responses=answers(models.RecordListModel, LIST))
async def list_records(
    account: SignedIn,
    context: WorkerContext,
    job: Annotated[str, Query(max_length=300, description="Only those about this job.")] = "",
    kinds: Annotated[str, Query(alias="type", max_length=1_000, description="Only these, with commas between.")] = "",
    until: Annotated[int | None, Query(ge=0, le=TIME_MAX, description="Only those up to this moment.")] = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="The most items of a page.")] = 100,
    cursor: Cursor = "",
) -> Response:
    """List the records of the journal, the newest first.

    A decision is about many jobs: it is not among those of a job. Where few records match, a page may be short, or
    empty, without being the last. Of jobs that the caller may not change, each value of a variable is `…`.
    """
    need_eyes(account)
    about = (await find(job, account, context))["id"] if job else ""
    wanted = Wanted(about, tuple(kind for kind in kinds.split(",") if kind), limit)
    items, place = await context.read(_page, wanted, until, place_of(cursor), account)
    return as_list(items, place)


def _page(
    connection: Connection, wanted: Wanted, until_ms: int | None, before: int | None, account: Account
) -> tuple[list[dict[str, Any]], int | None]:
    if before is None and until_ms is not None:
        before = first_after(connection, until_ms + 1)
    found, place = newest_before(connection, before, wanted)
    return [
        {"seq": entry.seq, "now_ms": entry.now_ms, "type": entry.type, "job": entry.job, "body": body}
        for entry, body in shown_to(connection, found, account)
    ], place
