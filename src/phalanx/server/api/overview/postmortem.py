"""The route of a job's post-mortem."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Response
from sqlalchemy import Connection

from phalanx.server.accounts.roles import Account
from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.context import Context
from phalanx.server.api.described import answers
from phalanx.server.api.overview import operator_models as models
from phalanx.server.api.overview.timeline import segments_of
from phalanx.server.api.pages import as_json
from phalanx.server.api.past import PAST
from phalanx.server.api.routes.jobs import Ref, find
from phalanx.server.figures.series import FILE, read_points
from phalanx.server.postmortem.causes import endings, first_cause
from phalanx.server.postmortem.history import History, NodeTrouble, Saving
from phalanx.server.postmortem.remedies import Series, intervals, longest_wait, remedies
from phalanx.server.postmortem.spent import spent
from phalanx.server.store import jobs as job_table
from phalanx.server.store.journal import said_by
from phalanx.server.store.past import healths_of, phases_of, sizes_of

router = APIRouter(tags=["jobs"])

NODES_MAX = 64
HEALTHS_MAX = 200
REPORTS_MAX = 10_000
QUEUES_MAX = 50
TOLD = ("id", "name", "queue", "user", "state", "gpus", "submitted_ms", "started_ms", "ended_ms", "told_start_ms")


class _Said(msgspec.Struct):
    durable_step: int = 0


class _Report(msgspec.Struct):
    body: _Said


_report = msgspec.json.Decoder(_Report)


@router.get("/jobs/{job}/postmortem", dependencies=PAST, responses=answers(models.PostmortemModel))
async def show_postmortem(job: Ref, account: SignedIn, context: WorkerContext) -> Response:
    """Show what became of a job's time: first cause, what each second went to, and what would have saved it.

    Of a job on more than 64 nodes the health of the first 64 is looked at. What another interval of checkpoints would
    have lost is calculated from how long each attempt ran; what one save costs is what the job says.
    """
    item = await find(job, account, context)
    history = await context.read(_history, item, context.now_ms())
    found, tried = endings(history), intervals(history)
    queues = await _own_room(history, account, context)
    return as_json(
        {
            "job": {key: item.get(key) for key in TOLD},
            "now_ms": history.now_ms,
            "first_cause": first_cause(history, found),
            "endings": [each._asdict() for each in found],
            "spent": [each._asdict() for each in spent(history)],
            "intervals": [each._asdict() for each in tried],
            "remedies": [each._asdict() for each in remedies(history, found, tried, queues)],
            "saves": history.saves,
            "save_cost_ms": history.saving.cost_ms or None,
            "segments": list(history.segments),
        }
    )


def _history(connection: Connection, item: dict[str, Any], now_ms: int) -> History:
    job = item["id"]
    attempts = job_table.attempts_of(connection, job)
    segments = list(segments_of(item, attempts, phases_of(connection, job)))
    nodes = list(dict.fromkeys(node for attempt in attempts for node in attempt["nodes"]))[:NODES_MAX]
    troubles = [
        NodeTrouble(node, each.at_ms, each.health, each.reason)
        for node in nodes
        for each in healths_of(connection, node, HEALTHS_MAX)
    ]
    said = (job_table.spec_of(connection, job) or {}).get("checkpoint") or {}
    saving = Saving(said.get("cost_ms", 0) or 0, said.get("interval_ms", 0) or 0)
    return History(
        item,
        attempts,
        segments,
        troubles,
        sizes_of(connection, [job]),
        saving,
        _saves(connection, job),
        now_ms,
    )


def _saves(connection: Connection, job: str) -> int:
    """How often a durable step was reported that was new, as far as the newest reports tell."""
    steps = [
        _report.decode(entry.line).body.durable_step
        for entry in said_by(connection, job, "Progress", 1 << 62, REPORTS_MAX)
    ]
    return len({step for step in steps if step})


async def _own_room(history: History, account: Account, context: Context) -> dict[str, Series]:
    """What other queues that the account may look at used of their own during the job's longest wait."""
    wait = longest_wait(history)
    if wait is None:
        return {}
    quotas = (await context.cluster()).get("queues", {})
    own = history.job["queue"]
    names = [name for name in quotas if name != own and account.sees(name) and not _has_inside(name, quotas)]
    return {
        name: await context.of_file(account.user, _series, context.options.file(FILE), name, *wait)
        for name in names[:QUEUES_MAX]
    }


def _has_inside(name: str, quotas: dict[str, Any]) -> bool:
    return any(other.startswith(f"{name}/") for other in quotas)


def _series(path: Any, queue: str, start_ms: int, end_ms: int) -> Series:
    _, points = read_points(path, f"queue:{queue}", start_ms, end_ms)
    return [
        (at_ms, values.get("gpus_used", 0.0), values["gpus_deserved"])
        for at_ms, values in points
        if "gpus_deserved" in values
    ]
