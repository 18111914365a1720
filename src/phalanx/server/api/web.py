"""Pages for browsers, and the answers for whoever watches the server: alive, ready."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Path, Response

from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.pages import as_json
from phalanx.server.refusal import Refusal

router = APIRouter(include_in_schema=False)

FILES = {
    "icon.svg": "image/svg+xml",
    "style.css": "text/css; charset=utf-8",
    "landing.js": "text/javascript; charset=utf-8",
    "reference.js": "text/javascript; charset=utf-8",
}


@router.get("/")
async def landing() -> Response:
    """The page that everybody sees."""
    return _file("landing.html", "text/html; charset=utf-8")


@router.get("/web/{name}")
async def file(name: Annotated[str, Path(max_length=50)]) -> Response:
    """A file that pages are made of; there are no others."""
    if name not in FILES:
        raise Refusal("not_found", "there is no such file")
    return _file(name, FILES[name])


@router.get("/favicon.ico")
async def icon() -> Response:
    """The icon, where browsers look for it unasked."""
    return _file("icon.svg", FILES["icon.svg"])


@router.get("/healthz")
async def alive() -> Response:
    """Whether this worker answers."""
    return as_json({"alive": True})


@router.get("/readyz")
async def ready(context: WorkerContext) -> Response:
    """Whether the server takes work: the loop has its State and moves, and the store can be read."""
    trouble = context.heartbeat.trouble if context.engine.connected else context.engine.trouble
    if trouble:
        return as_json({"ready": False, "why": trouble}, 503, {"Retry-After": "1"})
    await context.cluster()
    return as_json({"ready": True, "seq": context.engine.news.seq})


@router.get("/api/v1/docs")
async def reference(account: SignedIn) -> Response:
    """The API reference."""
    return _file("reference.html", "text/html; charset=utf-8")


def _file(name: str, media: str) -> Response:
    return Response(files("phalanx.server.web").joinpath(name).read_bytes(), media_type=media)
