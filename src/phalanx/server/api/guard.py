"""The guard before the routes: size and rate of requests, headers of responses, figures and the access log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from phalanx.server.api.errors import refused
from phalanx.server.api.figures import HttpFigures
from phalanx.server.options import Options
from phalanx.server.refusal import Refusal
from phalanx.workload.formats.limits import JOB_LIMITS

log = logging.getLogger("phalanx.access")

PAGE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    b"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
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

LARGE = ("/api/v1/jobs:batch", "/api/v1/cluster", "/api/v1/plan", "/api/v1/what-if")
"""Where many jobs or a whole cluster come in one body."""

BODY_BYTES_MAX = 4 * JOB_LIMITS.text
"""How large any other body may be: as one job file of the widest characters."""


class Guard:
    """Wraps the app. One caller is one address: its requests in a row are bounded, and refill steadily."""

    def __init__(self, app: ASGIApp, options: Options, figures: HttpFigures) -> None:
        self._app = app
        self._figures = figures
        self._large_bytes_max = options.body_bytes_max
        self._rate = RateLimit(options.rate_limit)
        self._headers = [*HEADERS, STRICT_TRANSPORT] if options.tls_cert else HEADERS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *self._headers, (b"cache-control", b"no-store")]
                self._figures.count(scope["method"], route_of(scope), status, time.perf_counter() - start)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            self._figures.refused.labels(refusal.code).inc()
            await refused(refusal)(scope, receive, send_guarded)
            return
        await self._app(scope, self._bounded(receive, self._body_max(scope)), send_guarded)
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

    def _refusal(self, scope: Scope) -> Refusal | None:
        if not self._rate.allows((scope.get("client") or ("",))[0]):
            return Refusal("rate_limited", "too many requests from one address: slow down", {"retry_after_s": 1})
        length = _header(scope, b"content-length")
        body_max = self._body_max(scope)
        if length is not None and (not length.isdigit() or int(length) > body_max):
            return _too_large(body_max)
        return None

    def _body_max(self, scope: Scope) -> int:
        """How many bytes a request may bring. They are kept in memory before anybody asks who sends them."""
        return self._large_bytes_max if scope["path"] in LARGE else min(BODY_BYTES_MAX, self._large_bytes_max)

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


def _too_large(body_max: int) -> Refusal:
    return Refusal("too_large", f"expected a body of at most {body_max} bytes")


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key == name), None)
