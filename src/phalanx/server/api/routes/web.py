"""The page and its files, and the answers for whatever watches the server: alive, ready."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from phalanx.server.api.admission.browser import set_cookie
from phalanx.server.api.auth import TOKEN_MAX, SignedIn, WorkerContext
from phalanx.server.api.pages import as_json
from phalanx.server.api.web_files import ICON, PAGE, REFERENCE, WebFile, static_files
from phalanx.server.refusal import Refusal

router = APIRouter(include_in_schema=False)


@router.get("/ui/static/{path:path}")
async def file(request: Request, path: Annotated[str, Path(max_length=200)]) -> Response:
    """A file that the page is made of; there are no others."""
    found = static_files().get(path)
    if found is None:
        raise Refusal("not_found", "there is no such file")
    return _answer(request, found)


@router.get("/ui/open/{key}")
async def enter(request: Request, context: WorkerContext, key: Annotated[str, Path(max_length=TOKEN_MAX)]) -> Response:
    """The address that `phalanx view` prints: it opens the session of the browser that goes there.

    A server has no such address: a link could put a user into the session of another.
    """
    account = await context.account(key) if context.options.shown else None
    if account is None:
        raise Refusal("not_found", "there is nothing here")
    response = RedirectResponse("/ui/overview", status_code=303)
    set_cookie(response, request, context.options, key)
    return response


@router.get("/")
@router.get("/ui")
@router.get("/ui/{path:path}")
async def page(request: Request) -> Response:
    """The page, at every address of its views: which one it shows, it reads there itself."""
    return _answer(request, static_files()[PAGE])


@router.get("/favicon.ico")
async def icon(request: Request) -> Response:
    """The icon, where browsers look for it unasked."""
    return _answer(request, static_files()[ICON])


@router.get("/healthz")
async def alive() -> Response:
    """Whether this worker answers."""
    return as_json({"alive": True})


@router.get("/readyz")
async def ready(context: WorkerContext) -> Response:
    """Whether the server takes work: the loop has its State and moves, and the store can be read."""
    if context.trouble:
        return as_json({"ready": False, "why": context.trouble}, 503, {"Retry-After": "1"})
    await context.cluster()
    return as_json({"ready": True, "seq": context.engine.news.seq})


@router.get("/api/v1/docs")
async def reference(account: SignedIn, request: Request) -> Response:
    """The API reference."""
    return _answer(request, static_files()[REFERENCE])


def _answer(request: Request, file: WebFile) -> Response:
    """A file, or nothing if the browser has it already. It asks each time: no old module may meet a new one."""
    headers = {"Cache-Control": "no-cache", "ETag": file.etag, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.content, headers=headers, media_type=file.media)
    return Response(file.compressed, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.media)
