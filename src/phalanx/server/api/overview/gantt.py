"""The route of the timeline: what ran where in a span of time, what is planned, and when nodes are out of service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Response
from sqlalchemy import Connection

from phalanx.server.accounts.roles import Account
from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.context import SHOWN, Context
from phalanx.server.api.described import answers
from phalanx.server.api.overview import operator_models as models
from phalanx.server.api.pages import as_json
from phalanx.server.api.past import PAST
from phalanx.server.api.planner import ask
from phalanx.server.api.routes.nodes import need_eyes
from phalanx.server.planner.questions import ListReservations
from phalanx.server.refusal import Refusal
from phalanx.server.store import nodes as node_table
from phalanx.server.store.past import Run, runs_between
from phalanx.server.view.windows import windows

router = APIRouter(tags=["cluster"])

DAY_MS = 86_400_000
TIME_MAX = 1 << 62
BARS_MAX = 20_000
PLANNER_PATIENCE_S = 2.0

Time = Annotated[int | None, Query(ge=0, le=TIME_MAX)]


@router.get("/timeline", dependencies=PAST, responses=answers(models.ClusterTimelineModel))
async def show_timeline(
    account: SignedIn,
    context: WorkerContext,
    since: Time = None,
    until: Time = None,
    queue: Annotated[str, Query(max_length=1_000, description="Only of this queue and those inside.")] = "",
    limit: Annotated[int, Query(ge=1, le=BARS_MAX, description="The most attempts; the newest are shown.")] = BARS_MAX,
) -> Response:
    """Show the attempts of a span of time with the nodes they had, what is reserved, and maintenance.

    Without `since` it is the last day. The columns of `bars` are as long as one another: one place is one attempt.
    Attempts of jobs that you may not look at have no job. Reservations are left out while the planner is busy.
    Maintenance is what ends after `since`, also where it is planned for after `until`, or is in the cluster no more;
    of that, the newest 200 that had begun.
    """
    need_eyes(account)
    end_ms = context.now_ms() if until is None else until
    start_ms = max(end_ms - DAY_MS, 0) if since is None else since
    if start_ms > end_ms:
        raise Refusal("invalid", f"expected since to be before until, got {start_ms} and {end_ms}")
    runs, names = await context.read(_found, start_ms, end_ms, queue, limit + 1)
    places = Places((name, place) for place, name in enumerate(names))
    return as_json(
        {
            "start_ms": start_ms,
            "end_ms": end_ms,
            "now_ms": context.now_ms(),
            "complete": len(runs) <= limit,
            "bars": _columns(runs[:limit], places, account),
            "nodes": list(places),
            "reservations": await _reservations(account, context),
            "maintenance": await context.read(windows, start_ms, context.now_ms()),
        }
    )


def _found(
    connection: Connection, start_ms: int, end_ms: int, queue: str, limit: int
) -> tuple[list[Run], Sequence[str]]:
    return runs_between(connection, start_ms, end_ms, queue, limit), node_table.names(connection)


class Places(dict[str, int]):
    """The place of each node among the nodes of an answer; one that is gone comes behind those there are."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


def _columns(runs: Sequence[Run], places: Places, account: Account) -> dict[str, list[Any]]:
    """Attempts by columns."""
    columns: dict[str, list[Any]] = {key: [] for key in models.BAR_KEYS}
    for run in runs:
        seen = account.sees(run.queue)
        columns["job"].append(run.job if seen else None)
        columns["name"].append(run.name if seen else "")
        columns["queue"].append(run.queue if seen else "")
        columns["attempt"].append(run.number)
        columns["submitted_ms"].append(run.submitted_ms if seen and run.number == 1 else None)
        columns["created_ms"].append(run.created_ms)
        columns["started_ms"].append(run.started_ms)
        columns["ended_ms"].append(run.ended_ms)
        columns["expected_end_ms"].append(run.expected_end_ms if run.ended_ms is None else None)
        columns["outcome"].append(run.outcome if seen else None)
        named = msgspec.json.decode(run.nodes, type=list[str])
        columns["nodes"].append([places[name] for name in dict.fromkeys(named)])
    return columns


async def _reservations(account: Account, context: Context) -> list[dict[str, Any]]:
    moment = SHOWN.get()
    try:
        told = (
            moment.told.reservations
            if moment is not None
            else msgspec.json.decode(await ask(context, account.user, ListReservations(), PLANNER_PATIENCE_S))["items"]
        )
    except Refusal:
        return []
    queues = await context.read(node_table.queues_of, [each["job"] for each in told if each["job"]])
    return [each for each in told if each["job"] in queues and account.sees(queues[each["job"]])]
