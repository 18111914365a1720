"""Routes for operators of the server: metrics, backends, the debug bundle."""

from __future__ import annotations

import os

import msgspec
from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from sqlalchemy import Connection, select
from starlette.concurrency import run_in_threadpool

from phalanx.engine.fold.snapshot import seq_of
from phalanx.engine.state.journal import GENESIS
from phalanx.server.accounts.roles import Role
from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.context import Context
from phalanx.server.api.described import READ, answers, content
from phalanx.server.api.models.cluster import BackendListModel
from phalanx.server.api.models.found import AlertListModel
from phalanx.server.api.pages import as_list
from phalanx.server.api.planner import ask
from phalanx.server.bundle import Parts, bundle, journal_between, start_of
from phalanx.server.metrics import ClusterMetrics
from phalanx.server.planner.questions import HideValues, TakeSnapshot
from phalanx.server.refusal import Refusal
from phalanx.server.store import settings
from phalanx.server.store.tables import alerts

router = APIRouter(tags=["watching"])

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""Where workers leave their figures for one another: whichever is asked answers for all."""


@router.get("/metrics", responses=content("text/plain", READ))
async def metrics(account: SignedIn, context: WorkerContext) -> Response:
    """Metrics for Prometheus, of all workers and the loop."""
    if not account.sees(""):
        raise Refusal("forbidden", "metrics tell of every queue: they need the role viewer of the whole cluster")
    return Response(await run_in_threadpool(_metrics, context), media_type=CONTENT_TYPE_PLAIN_0_0_4)


@router.get("/api/v1/backends", responses=answers(BackendListModel))
async def list_backends(account: SignedIn, context: WorkerContext) -> Response:
    """List what carries out plans, what it can do, and why it cannot do the rest."""
    offer = await context.read(_offer)
    return as_list([offer] if offer else [])


@router.get("/api/v1/alerts", responses=answers(AlertListModel))
async def list_alerts(account: SignedIn, context: WorkerContext) -> Response:
    """List the alerts that fire now."""
    if not account.sees(""):
        raise Refusal("forbidden", "alerts tell of every queue: they need the role viewer of the whole cluster")
    return as_list(await context.read(_alerts))


@router.get("/api/v1/debug/bundle", responses=content("application/zip", READ))
async def debug_bundle(account: SignedIn, context: WorkerContext) -> Response:
    """Download logs, settings and a replayable snapshot, by which a problem can be looked into elsewhere.

    Each value of a variable of a job is `…` in it.
    """
    if not account.may(Role.ADMIN):
        raise Refusal("forbidden", "a bundle holds the jobs of all users: only an admin may take one")
    parts = await _parts(context, account.user)
    figures = await run_in_threadpool(_metrics, context)
    made = await context.read(bundle, context.options, parts, figures)
    headers = {"Content-Disposition": 'attachment; filename="phalanx-bundle.zip"'}
    return Response(made, media_type="application/zip", headers=headers)


async def _parts(context: Context, user: str) -> Parts:
    """The State, the journal up to it, and of a long one the State at which it begins, all without values of variables.

    The planner reads and writes the States: they may be large, and it knows their policies.
    """
    state = await ask(context, user, TakeSnapshot())
    until = seq_of(state)
    start = await context.read(start_of, until)
    first, beginning = -1, b""
    if start is not None:
        try:
            beginning = await ask(context, user, HideValues(start.content, GENESIS))
            first = start.seq
        except Refusal as refusal:
            # One that cannot be read, such as that of another release, is done without: the journal is given whole.
            if refusal.code != "invalid":
                raise
    lines, link = await context.read(journal_between, first, until)
    return Parts(await ask(context, user, HideValues(state, link)), lines, beginning)


def _metrics(context: Context) -> bytes:
    registry = CollectorRegistry()
    if SHARED in os.environ:
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    registry.register(ClusterMetrics(context.database, context.options))
    figures = generate_latest(registry)
    return figures if SHARED in os.environ else figures + generate_latest(context.figures.registry)


def _alerts(connection: Connection) -> list[dict[str, object]]:
    found = connection.execute(select(alerts).order_by(alerts.c.rule, alerts.c.subject))
    return [dict(row._mapping) for row in found]


def _offer(connection: Connection) -> dict[str, object] | None:
    found: dict[str, object] | None = msgspec.json.decode(settings.get(connection, "backend") or b"null")
    return found
