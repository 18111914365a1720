"""The guard before the routes: rate, size and token of requests, headers of responses, figures and the access log."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from phalanx.server.api.admission.departure import answer_while_connected
from phalanx.server.api.auth import SAFE, account_of, attempt_of, bearer
from phalanx.server.api.context import Context
from phalanx.server.api.engine import ONLY_SHOWN
from phalanx.server.api.errors import refusal_of, refused
from phalanx.server.refusal import Refusal
from phalanx.server.store.database import StoreError
from phalanx.server.studies.limits import UPLOAD_BYTES_MAX
from phalanx.workload.formats.limits import JOB_LIMITS

log = logging.getLogger("phalanx.access")

PAGE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; font-src 'self'; "
    b"worker-src 'self'; manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = [
    (b"content-security-policy", PAGE_POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
]
STRICT_TRANSPORT = (b"strict-transport-security", b"max-age=31536000")
SLOW_S = 1.0
PROBED = "/readyz"
"""Asked again and again while the server starts, and told why it is not ready: no news for the log."""

CALLERS_KEPT = 10_000

API = "/api/v1"
OPEN = (f"{API}/login", f"{API}/session")
"""Routes of the API that need no token: here one is had, or a session. To end one it is asked for by the route."""

QUESTIONS = (f"{API}/plan", f"{API}/what-if")
"""Routes that take a body and change nothing."""

PROGRESS = re.compile(rf"{API}/jobs/[^/]+/progress")
"""Where attempts report, with tokens of their own."""

BODY_BYTES_MAX = 256 << 10
"""How large a body may be where nothing else is said: the largest is a report of 100 metrics."""

FEW_JOBS_BYTES_MAX = 4 * JOB_LIMITS.text
"""How large one job file of the widest characters may be, and up to 100 job files that are asked about."""

SMALL_BYTES_MAX = 16 << 10
"""How large a body without a token may be: a name and a password, every character of them escaped."""

BODY_BYTES = {
    f"{API}/jobs": FEW_JOBS_BYTES_MAX,
    f"{API}/plan": FEW_JOBS_BYTES_MAX,
    f"{API}/what-if": FEW_JOBS_BYTES_MAX,
    **dict.fromkeys(OPEN, SMALL_BYTES_MAX),
}
MANY_JOBS = (f"{API}/jobs:batch", f"{API}/cluster")
"""Where thousands of jobs, or a whole cluster, come in one body."""

UPLOADS = f"{API}/uploads"
"""Where a trace comes, which goes to the disk piece by piece."""

LARGE_AT_ONCE = 2
"""Bodies above `BODY_BYTES_MAX` that a worker takes of one user at a time: each is kept in memory while it is read."""


class Guard:
    """Wraps the app. One caller is one address: its requests in a row are bounded, and refill steadily.

    Of a request without a valid token no byte of the body is read. What is refused with a body still to come is closed.
    """

    def __init__(self, app: ASGIApp, context: Context) -> None:
        options = context.options
        self._app = app
        self._context = context
        self._figures = context.figures
        self._many_jobs_bytes_max = options.body_bytes_max
        self._rate = RateLimit(options.rate_limit)
        self._headers = [*HEADERS, STRICT_TRANSPORT] if options.tls_cert else HEADERS
        self._large: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "websocket":
            await self._open_socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _completed(message.get("headers", []), self._headers)
                self._figures.count(scope["method"], route_of(scope), status, time.perf_counter() - start)
            await send(message)

        try:
            self._check_change(scope)
            self._check_rate_and_size(scope)
            user = await self._user_of(scope)
            with self._share(user, scope):
                await self._answer(scope, self._bounded(receive, self._body_max(scope)), send_guarded)
        except (Refusal, StoreError) as error:
            refusal = refusal_of(error)
            self._figures.refused.labels(refusal.code).inc()
            answer = refused(refusal)
            if _announces_body(scope):
                answer.headers["Connection"] = "close"
            await answer(scope, receive, send_guarded)
        seconds = time.perf_counter() - start
        if (status >= 400 or seconds > SLOW_S) and scope["path"] != PROBED:
            log.info(
                "request",
                extra={
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status,
                    "ms": round(seconds * 1000, 1),
                    "from": (scope.get("client") or ("",))[0],
                    "user": scope.get("state", {}).get("user", ""),
                },
            )

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Has a request answered. A read is broken off when its caller has gone; a change is carried out."""
        if scope["method"] in SAFE and not _announces_body(scope):
            await answer_while_connected(self._app, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _open_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Opens a web socket; it counts as one request, however long it stays open."""
        try:
            self._check_change(scope)
            self._check_rate(scope)
        except Refusal as refusal:
            self._figures.refused.labels(refusal.code).inc()
            await WebSocket(scope, receive, send).send_denial_response(refused(refusal))
            return
        await self._app(scope, receive, send)

    def _check_change(self, scope: Scope) -> None:
        """Where a journal is shown, nothing is changed, and no task can be reached."""
        asks = scope["type"] == "http" and (scope["method"] in SAFE or scope["path"] in QUESTIONS)
        if self._context.options.shown and not asks:
            raise Refusal("forbidden", ONLY_SHOWN)

    def _check_rate(self, scope: Scope) -> None:
        if not self._rate.allows((scope.get("client") or ("",))[0]):
            raise Refusal("rate_limited", "too many requests from one address: slow down", {"retry_after_s": 1})

    def _check_rate_and_size(self, scope: Scope) -> None:
        self._check_rate(scope)
        length = _header(scope, b"content-length")
        body_max = self._body_max(scope)
        if length is not None and (not length.isdigit() or int(length) > body_max):
            raise _too_large(body_max)

    async def _user_of(self, scope: Scope) -> str:
        """The user behind a request, or the attempt; empty where neither is needed."""
        path = scope["path"]
        if path in OPEN or not path.startswith((f"{API}/", "/metrics")):
            return ""
        request = Request(scope)
        credentials = await bearer(request)
        if PROGRESS.fullmatch(path):
            attempt = await attempt_of(request, self._context, credentials)
            return f"job {attempt.job}"
        return (await account_of(request, self._context, credentials)).user

    @contextmanager
    def _share(self, user: str, scope: Scope) -> Iterator[None]:
        """Bounds how many large bodies of one user are under way."""
        length = _header(scope, b"content-length")
        at_most = int(length) if length is not None else self._body_max(scope)
        if not _announces_body(scope) or at_most <= BODY_BYTES_MAX:
            yield
            return
        if self._large[user] >= LARGE_AT_ONCE:
            message = f"{LARGE_AT_ONCE} large requests of {user} are being read: send one after another"
            raise Refusal("rate_limited", message, {"retry_after_s": 1})
        self._large[user] += 1
        try:
            yield
        finally:
            self._large[user] -= 1
            if not self._large[user]:
                del self._large[user]

    def _body_max(self, scope: Scope) -> int:
        """How many bytes a request may bring: as many as what its route carries needs."""
        if scope["path"] == UPLOADS:
            return UPLOAD_BYTES_MAX
        most = self._many_jobs_bytes_max
        return most if scope["path"] in MANY_JOBS else min(BODY_BYTES.get(scope["path"], BODY_BYTES_MAX), most)

    def _bounded(self, receive: Receive, body_max: int) -> Receive:
        """Bodies that do not tell their length are counted as they come."""
        received = 0

        async def receive_bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > body_max:
                refusal = _too_large(body_max)
                raise HTTPException(refusal.status, refusal.message)
            return message

        return receive_bounded


class RateLimit:
    """So many requests a second and caller, and twice as many in a row after a pause."""

    def __init__(self, per_s: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def allows(self, caller: str) -> bool:
        """Whether one more request of a caller is within bounds."""
        now = self._clock()
        left, at = self._left.get(caller, (2.0 * self._per_s, now))
        left = min(left + (now - at) * self._per_s, 2.0 * self._per_s)
        if len(self._left) > CALLERS_KEPT:
            self._left.clear()
        self._left[caller] = (max(left - 1, 0.0), now)
        return left >= 1


def route_of(scope: Scope) -> str:
    """The route of a request as it is documented: figures must not grow with what callers make up."""
    route: Any = scope.get("route")
    path: str = getattr(route, "path", "")
    return path or "-"


def _completed(own: Iterable[tuple[bytes, bytes]], more: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a response. What says nothing of caches is kept in none: it may be some user's alone."""
    given = list(own)
    if not any(name.lower() == b"cache-control" for name, _ in given):
        given.append((b"cache-control", b"no-store"))
    return [*given, *more]


def _announces_body(scope: Scope) -> bool:
    return _header(scope, b"transfer-encoding") is not None or _header(scope, b"content-length") not in (None, b"0")


def _too_large(body_max: int) -> Refusal:
    return Refusal("too_large", f"expected a body of at most {body_max} bytes")


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key == name), None)
