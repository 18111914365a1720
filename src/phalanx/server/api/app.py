"""The app of a worker: its routes, its guard, and its line to the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Response

from phalanx.server.api import (
    errors,
)
from phalanx.server.api.admission.guard import Guard
from phalanx.server.api.auth import SignedIn
from phalanx.server.api.context import Context
from phalanx.server.api.examples import with_examples
from phalanx.server.api.overview import (
    attention,
    devices,
    gantt,
    past,
    postmortem,
    reasons,
    receipts,
    records,
    scheduler,
    series,
    timeline,
)
from phalanx.server.api.pages import as_json
from phalanx.server.api.routes import (
    accounting,
    accounts,
    applying,
    changing,
    job_templates,
    jobs,
    nodes,
    planning,
    secrets,
    sessions,
    studies,
    watching,
    web,
)
from phalanx.server.api.streams import beside, events, forward, found, log_lines, logs

PREFIX = "/api/v1"
DESCRIPTION = (
    "Jobs on GPU clusters. Every request carries `Authorization: Bearer TOKEN`, or the cookie of a session. Lists come "
    "in pages: ask for the next with its cursor. Errors are `{code, message, detail}`. Times are milliseconds since "
    "1970."
)


def create_app(context: Context) -> FastAPI:
    """The app of a worker."""
    app = FastAPI(
        title="phalanx",
        version=version("phalanx"),
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.context = context
    for module in (
        jobs,
        changing,
        forward,
        log_lines,
        logs,
        found,
        nodes,
        devices,
        reasons,
        attention,
        series,
        timeline,
        gantt,
        past,
        postmortem,
        records,
        receipts,
        scheduler,
        applying,
        planning,
        studies,
        events,
        accounting,
        accounts,
        sessions,
        secrets,
        beside,
    ):
        app.include_router(module.router, prefix=PREFIX)
    app.include_router(job_templates.router, prefix=PREFIX)
    app.include_router(watching.router)
    app.include_router(web.router)
    app.add_api_route(f"{PREFIX}/openapi.json", _openapi_route(app), include_in_schema=False)
    errors.install(app)
    app.add_middleware(Guard, context=context)
    return app


def openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of an app."""
    return with_examples(app.openapi())


def _openapi_route(app: FastAPI) -> Any:
    async def openapi_document(account: SignedIn) -> Response:
        """The OpenAPI document."""
        return as_json(openapi(app))

    return openapi_document


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    context: Context = app.state.context
    line = asyncio.create_task(context.engine.keep_connected())
    try:
        yield
    finally:
        line.cancel()
        with suppress(asyncio.CancelledError):
            await line
        context.database.close()
