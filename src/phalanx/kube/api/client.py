"""The client: requests over a pool of connections that are kept open, and watches that each have one of their own."""

from __future__ import annotations

import http.client
import random
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from phalanx.kube.api.access import Access
from phalanx.kube.api.errors import BY_STATUS, ApiError, TooManyRequestsError, UnreachableError
from phalanx.kube.objects.meta import Bookmark

TIMEOUT_S = 30.0
WATCH_SILENCE_S = 90.0
"""A watch on which not even a bookmark came for so long is dead; the server sends one a minute."""

STALE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, ssl.SSLEOFError)
"""How a kept connection fails that the server has closed meanwhile."""

BUSY_S = 30.0
"""How long a request is repeated that the server has no time for: a gang of which one bind fails is undone whole."""

BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.1, 2.0

T = TypeVar("T")


class Client:
    """Talks to one API server. May be used by several threads at once."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._answers: Counter[tuple[str, int]] = Counter()
        self._counting = threading.Lock()
        self._is_closed = False

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections that nothing waits on, and from now on the others once they are answered."""
        self._is_closed = True
        self._end_idle()

    def _end_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def get(self, path: str, as_type: type[T], **query: str) -> T:
        """Reads an object."""
        return msgspec.json.decode(self.ask("GET", _target(path, query)), type=as_type)

    def post(self, path: str, body: Any, **query: str) -> bytes:
        """Creates an object, or asks for what a subresource does."""
        return self.ask("POST", _target(path, query), msgspec.json.encode(body))

    def patch(self, path: str, body: Any, kind: str = "strategic-merge-patch") -> bytes:
        """Changes some fields of an object."""
        return self.ask("PATCH", path, msgspec.json.encode(body), f"application/{kind}+json")

    def delete(self, path: str, body: Any = None) -> bytes:
        """Deletes an object."""
        return self.ask("DELETE", path, msgspec.json.encode(body) if body is not None else None)

    def ask(self, method: str, target: str, body: bytes | None = None, kind: str = "application/json") -> bytes:
        """One request. One that the server has no time for is repeated for a while; any other error is raised."""
        until, pause_s = time.monotonic() + BUSY_S, BACKOFF_FIRST_S
        while True:
            try:
                return self._ask_once(method, target, body, kind)
            except TooManyRequestsError:
                # A refused eviction is an answer: the disruption budget says no.
                if target.endswith("/eviction") or time.monotonic() > until:
                    raise
            # Those that were turned away together would all come back together.
            time.sleep(random.uniform(0.5, 1.5) * pause_s)
            pause_s = min(2 * pause_s, BACKOFF_MAX_S)

    def _ask_once(self, method: str, target: str, body: bytes | None, kind: str) -> bytes:
        while True:
            reused = bool(self._idle)
            connection = self._take()
            try:
                connection.request(method, target, body, self._headers(kind if body is not None else None))
                response = connection.getresponse()
                answer = response.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if reused and isinstance(error, STALE):
                    # The server closes connections that were idle for long. All requests here may be repeated.
                    continue
                self._count(method, 0)
                raise self._unreachable(error) from error
            self._count(method, response.status)
            self._idle.append(connection)
            if self._is_closed:
                self._end_idle()
            if response.status >= 400:
                raise _error(response.status, method, target, answer)
            return answer

    def clock_ahead_s(self) -> float:
        """How far the server's clock is ahead of ours. It tells the second: less than that is no difference."""
        connection = self.open(TIMEOUT_S)
        try:
            asked_s = time.time()
            connection.request("GET", "/version", headers=self._headers(None))
            response = connection.getresponse()
            response.read()
            answered_s = time.time()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        try:
            told_s = parsedate_to_datetime(response.getheader("Date", "")).timestamp()
        except ValueError:
            return 0.0
        least_s, most_s = told_s - answered_s, told_s + 1 - asked_s
        return 0.0 if least_s <= 0 <= most_s else (least_s + most_s) / 2

    def answers(self) -> dict[tuple[str, int], int]:
        """How many answers came, by method and status; 0 where none came. Watches are not in it."""
        with self._counting:
            return dict(self._answers)

    def _count(self, method: str, status: int) -> None:
        with self._counting:
            self._answers[method, status] += 1

    def _take(self) -> http.client.HTTPConnection:
        try:
            return self._idle.pop()
        except IndexError:
            return self.connect(TIMEOUT_S)

    def connect(self, timeout_s: float) -> http.client.HTTPConnection:
        """A connection outside of the pool."""
        access = self.access
        if access.tls is None:
            return http.client.HTTPConnection(access.host, access.port, timeout=timeout_s)
        return http.client.HTTPSConnection(access.host, access.port, timeout=timeout_s, context=access.tls)

    def open(self, timeout_s: float) -> http.client.HTTPConnection:
        """A connection outside of the pool that stands."""
        connection = self.connect(timeout_s)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise self._unreachable(error) from error
        return connection

    def _headers(self, kind: str | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "phalanx"}
        if kind is not None:
            headers["Content-Type"] = kind
        token = self.access.token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _unreachable(self, error: Exception) -> UnreachableError:
        said = str(error) or type(error).__name__
        return UnreachableError(0, f"the API server at {self.access} does not answer: {said}")

    def watch(self, connection: http.client.HTTPConnection, path: str, version: str, **query: str) -> Iterator[bytes]:
        """Lines of a watch from a version on, until the server ends it. One that breaks raises UnreachableError."""
        target = _target(path, {**query, "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version})
        try:
            connection.request("GET", target, headers=self._headers(None))
            response = connection.getresponse()
            if response.status >= 400:
                raise _error(response.status, "GET", target, response.read())
            while line := response.readline():
                yield line
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            # A connection that another thread closes fails in any of these ways.
            raise self._unreachable(error) from error


def _target(path: str, query: dict[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _error(status: int, method: str, target: str, answer: bytes) -> ApiError:
    try:
        said = msgspec.json.decode(answer, type=Bookmark)
        message = said.message or said.reason
    except msgspec.MsgspecError:
        message = answer[:200].decode(errors="replace").strip()
    where = target.partition("?")[0]
    return BY_STATUS.get(status, ApiError)(status, f"{method} {where}: {status}: {message or 'no reason given'}")
