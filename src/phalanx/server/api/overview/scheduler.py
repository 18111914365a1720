"""The route of the scheduler itself: how long it decides, what comes in, where its journal is, and its processes."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from fastapi import APIRouter, Response
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool

from phalanx.policy.guarded import PolicyError
from phalanx.policy.registry import policy as policy_of
from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.context import Context
from phalanx.server.api.described import answers
from phalanx.server.api.overview import operator_models as models
from phalanx.server.api.pages import as_json
from phalanx.server.loop.loop_metrics import BOUNDS_S, Durations, Figures
from phalanx.server.metrics import figures_of
from phalanx.server.process_table import Process, children_of
from phalanx.server.refusal import Refusal
from phalanx.server.store.journal import decisions_cut_short
from phalanx.server.store.snapshots import newest_first

router = APIRouter(tags=["watching"])

SILENT_MS = 30_000
"""So long without a look at the State, and the planner is behind: it looks every few seconds."""


@router.get("/scheduler", responses=answers(models.SchedulerModel))
async def show_scheduler(account: SignedIn, context: WorkerContext) -> Response:
    """Show how the scheduler itself does: its decisions, its journal and its processes."""
    if not account.sees(""):
        raise Refusal("forbidden", "it tells of every queue's work: it needs the role viewer of the whole cluster")
    figures = await run_in_threadpool(figures_of, context.options) or Figures()
    cluster = await context.cluster()
    stored = await context.read(_stored)
    processes = await run_in_threadpool(children_of, os.getppid())
    return as_json(
        {
            "now_ms": context.now_ms(),
            "started_ms": figures.started_ms or None,
            "seq": figures.seq,
            "policy": cluster["policy"],
            "placement": cluster["placement"],
            "solver": _solver_of(cluster["policy"]),
            "advice_kept": figures.advice_kept,
            "bounds_s": list(BOUNDS_S),
            "decisions": _told(figures.decisions),
            "turns": _told(figures.turns),
            "commits": _told(figures.commits),
            "requests": figures.requests,
            "events": figures.events,
            "jobs_in_line": figures.jobs_in_line,
            "gpus_in_line": figures.gpus_in_line,
            "attempts": figures.attempts,
            **stored,
            "processes": [_shown(process, context) for process in processes],
        }
    )


def _told(durations: Durations) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(durations)
    return found


def _stored(connection: Connection) -> dict[str, Any]:
    looked_at, cut_short = decisions_cut_short(connection)
    newest = next(iter(newest_first(connection)), None)
    return {
        "decisions_looked_at": looked_at,
        "decisions_cut_short": cut_short,
        "snapshot": {"seq": newest.seq, "at_ms": newest.now_ms} if newest is not None else None,
    }


def _solver_of(policy: str) -> str | None:
    """The solver that a policy asks, if it asks one. Of a policy that this worker does not know nothing is known."""
    try:
        return policy_of(policy).adviser or None
    except (ValueError, PolicyError):
        return None


def _shown(process: Process, context: Context) -> dict[str, Any]:
    return {**process._asdict(), "trouble": _trouble_of(process.name, context)}


def _trouble_of(name: str, context: Context) -> str:
    """What is the matter with a process of the server, as far as this one can tell; empty where nothing is."""
    if name == "loop":
        return context.trouble
    if name == "planner":
        behind_ms = context.now_ms() - context.board.outlook(context).now_ms
        return f"it has not looked at the state for {behind_ms // 1000} s" if behind_ms > SILENT_MS else ""
    return ""
