"""Route of series: figures over time, in as many points as a page draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from phalanx.server.accounts.roles import Account
from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.context import Context
from phalanx.server.api.described import answers
from phalanx.server.api.overview import models
from phalanx.server.api.pages import as_json
from phalanx.server.api.past import PAST
from phalanx.server.api.routes.jobs import find
from phalanx.server.api.routes.nodes import need_eyes
from phalanx.server.figures.sample import CLUSTER_NAMES, JOB_NAMES, NODE_NAMES, QUEUE_NAMES
from phalanx.server.figures.series import FILE, Point, first_ms, read_points
from phalanx.server.refusal import Refusal
from phalanx.server.store import nodes as node_table

router = APIRouter(tags=["cluster"])

HOUR_MS = 3_600_000
POINTS_MAX = 1_000
NAMES_MAX = 50
TIME_MAX = 1 << 62
NAMES = {"cluster": CLUSTER_NAMES, "queue": QUEUE_NAMES, "node": NODE_NAMES, "job": JOB_NAMES}

Time = Annotated[int | None, Query(ge=0, le=TIME_MAX)]


@router.get("/series", dependencies=PAST, responses=answers(models.SeriesModel))
async def show_series(
    account: SignedIn,
    context: WorkerContext,
    scope: Annotated[
        str, Query(max_length=1100, description="`cluster`, `queue:NAME`, `node:NAME` or `job:ID`.")
    ] = "cluster",
    names: Annotated[str, Query(max_length=4000, description="With commas between; all of them, if not given.")] = "",
    since: Time = None,
    until: Time = None,
    last_ms: Annotated[
        int | None, Query(ge=1, le=TIME_MAX, description="In place of `since`: this long before `until`.")
    ] = None,
    points: Annotated[int, Query(ge=1, le=POINTS_MAX, description="The most points.")] = 300,
) -> Response:
    """Show figures of the past, as means over equal steps; null where nothing is known.

    The cluster and queues are known for a month, nodes for a day, and jobs all the time that they ran, the newest 2,000
    of them also after they ended; the further back, the coarser. Without `since` the last hour is shown, of a job all
    that is known. A job has `gpus`, `progress`, `utilization`, `memory_mb` and the first twelve metrics it reports.
    """
    known = await _known_scope(scope, account, context)
    kind = known.partition(":")[0]
    wanted = _names_of(names, kind)
    path = context.options.file(FILE)
    end_ms = context.now_ms() if until is None else until
    start_ms = _start_of(since, last_ms, end_ms)
    if start_ms is None and kind == "job":
        start_ms = await context.of_file(account.user, first_ms, path, known)
    if start_ms is None:
        start_ms = max(end_ms - HOUR_MS, 0)
    if start_ms > end_ms:
        raise Refusal("invalid", f"expected since to be before until, got {start_ms} and {end_ms}")
    step_ms, found = await context.of_file(account.user, read_points, path, known, start_ms, end_ms)
    if not wanted:
        wanted = list(dict.fromkeys([*NAMES[kind], *(name for point in found for name in point.values)]))
    return as_json({"scope": known, **downsampled(found, wanted, step_ms, (start_ms, end_ms), points)})


def _start_of(since: int | None, last_ms: int | None, end_ms: int) -> int | None:
    if last_ms is None:
        return since
    if since is not None:
        raise Refusal("invalid", f"expected since or last_ms, got both: {since} and {last_ms}")
    return max(end_ms - last_ms, 0)


def downsampled(
    found: Sequence[Point], names: list[str], step_ms: int, between: tuple[int, int], points: int
) -> dict[str, Any]:
    """Means of points over steps that are long enough for there to be no more than so many."""
    start_ms, end_ms = between
    steps = max(-(-(end_ms - start_ms) // (points * step_ms)), 1)
    wide_ms = steps * step_ms
    first = start_ms // wide_ms
    count = min(max(-(-end_ms // wide_ms) - first, 1), points + 1)
    sums: dict[str, list[float | None]] = {name: [None] * count for name in names}
    counts: dict[str, list[int]] = {name: [0] * count for name in names}
    for at_ms, values in found:
        place = at_ms // wide_ms - first
        if 0 <= place < count:
            for name in names:
                value = values.get(name)
                if value is not None:
                    sums[name][place] = (sums[name][place] or 0.0) + value
                    counts[name][place] += 1
    means = {
        name: [
            None if total is None else round(total / number, 4)
            for total, number in zip(totals, counts[name], strict=True)
        ]
        for name, totals in sums.items()
    }
    return {"step_ms": wide_ms, "start_ms": first * wide_ms, "names": names, "values": means}


async def _known_scope(scope: str, account: Account, context: Context) -> str:
    """A scope that the account may look at; what it may not look at is not there."""
    kind, _, name = scope.partition(":")
    match kind:
        case "cluster" if not name:
            need_eyes(account)
            return "cluster"
        case "job" if name:
            return f"job:{(await find(name, account, context))['id']}"
        case "node" if name:
            need_eyes(account)
            if await context.read(node_table.one, name) is None:
                raise Refusal("not_found", f"there is no node {name!r}")
            return scope
        case "queue" if name:
            if not account.sees(name):
                raise Refusal("not_found", f"there is no queue {name!r} that you may look at")
            return scope
    raise Refusal("invalid", "expected scope to be cluster, queue:NAME, node:NAME or job:ID")


def _names_of(text: str, kind: str) -> list[str]:
    names = list(dict.fromkeys(name for name in text.split(",") if name))
    if len(names) > NAMES_MAX:
        raise Refusal("invalid", f"expected at most {NAMES_MAX} names, got {len(names)}")
    for name in names:
        if kind != "job" and name not in NAMES[kind]:
            raise Refusal("invalid", f"a {kind} has no series {name!r} (it has: {', '.join(NAMES[kind])})")
    return names
