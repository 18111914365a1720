"""Errors as responses: always `{code, message, detail}`."""

from __future__ import annotations

import logging

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from phalanx.document import DocumentError
from phalanx.server.refusal import CODES, Refusal
from phalanx.server.store.database import DamagedStoreError, StoreError

log = logging.getLogger("phalanx.api")

SHOWN_ERRORS = 20


def refused(refusal: Refusal) -> Response:
    """A refusal as a response."""
    headers = {}
    if refusal.code == "unauthenticated":
        headers["WWW-Authenticate"] = "Bearer"
    if refusal.detail and "retry_after_s" in refusal.detail:
        headers["Retry-After"] = str(refusal.detail["retry_after_s"])
    content = msgspec.json.encode(refusal.body)
    return Response(content, refusal.status, headers, media_type="application/json")


def refusal_of(error: Refusal | StoreError) -> Refusal:
    """What a client is told of an error. Where the store is, is for the log alone."""
    if isinstance(error, Refusal):
        return error
    log.error(str(error))
    if isinstance(error, DamagedStoreError):
        return Refusal("unavailable", "the store is damaged: an operator must put a backup in its place")
    return Refusal("unavailable", "the store cannot be read at the moment: try again", {"retry_after_s": 1})


def install(app: FastAPI) -> None:
    """Has every error of an app answered in the one form."""
    app.add_exception_handler(Refusal, _refusal)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(DocumentError, _document)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(StoreError, _store)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _defect)


async def _refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return refused(error)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [{"at": ".".join(map(str, each["loc"])), "problem": each["msg"]} for each in error.errors()[:SHOWN_ERRORS]]
    told = [f"{each['at'].removeprefix('body.')}: {each['problem']}" for each in found]
    return refused(Refusal("invalid", told[0] if told else "the request is not as expected", {"errors": found}))


async def _document(_: Request, error: Exception) -> Response:
    assert isinstance(error, DocumentError)
    return refused(Refusal("invalid", str(error), {"line": error.line, "key": error.key}))


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = CODES.get(error.status_code, "bad_request" if error.status_code < 500 else "internal")
    message = str(error.detail)
    if code == "not_found":
        message = "there is no such page; GET /api/v1/openapi.json lists what there is"
    response = refused(Refusal(code, message))
    response.headers.update(error.headers or {})
    return response


async def _store(_: Request, error: Exception) -> Response:
    assert isinstance(error, StoreError)
    return refused(refusal_of(error))


async def _gone(_: Request, error: Exception) -> Response:
    """For a client that left while it sent its request: it reads no answer."""
    return Response(status_code=400)


async def _defect(request: Request, error: Exception) -> Response:
    log.error("a defect", exc_info=error, extra={"method": request.method, "path": request.url.path})
    return refused(Refusal("internal", "a defect of the server; its log has more"))
