"""The recorder: watches a cluster, changes nothing on it, and writes down what comes."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

import msgspec

from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError, UnauthorizedError, UnreachableError
from phalanx.kube.api.reflector import Broken, Changed, Listed, News, Reflector
from phalanx.kube.mirror import NODES
from phalanx.kube.objects.meta import Stored
from phalanx.kube.shadow.recording import ALIVE, BEGIN, GONE, MISSING, READY, THERE, Entry, write
from phalanx.kube.shadow.sources import Sources, readable
from phalanx.kube.shadow.trimmed import essence, trimmed

ALIVE_S = 20.0
"""How often it is made sure that the server is still there: what was missed is known so exactly."""

RETRY_S = 5.0
LIST_WITHIN_S = 300.0
WRITES_MAX = 5000
SERVER_ERROR = 500


class LostError(ApiError):
    """Something may have been missed: what there is must be read anew."""


class Recorder:
    """Writes a recording. `tell` hears of what a person should know."""

    def __init__(self, client: Client, file: BinaryIO, tell: Callable[[str], None]) -> None:
        self._client = client
        self._file = file
        self._tell = tell
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Has it end. May be called from any thread, and in a signal handler."""
        self._stopped.set()

    def run(self, for_s: float, on_ready: Callable[[], None] = lambda: None) -> None:
        """Records for so long, or until it is stopped. A server that is away is waited for, and that is a gap."""
        until, is_first = time.monotonic() + for_s, True
        while not self._stopped.is_set() and (is_first or time.monotonic() < until):
            try:
                sources, missing = readable(self._client)
                self._tell_missing(missing)
                _Section(self._client, self._file, sources).follow(self._stopped, until, missing, on_ready)
                is_first = False
            except ApiError as error:
                if not isinstance(error, UnreachableError | LostError) and error.status < SERVER_ERROR:
                    raise
                self._tell(f"a gap begins: {error}")
                self._stopped.wait(RETRY_S)

    def _tell_missing(self, missing: dict[str, str]) -> None:
        for kind, why in missing.items():
            self._tell(f"not recorded: {kind}: {why}")


class _Section:
    """One stretch of a recording in which nothing is missed."""

    def __init__(self, client: Client, file: BinaryIO, sources: Sources) -> None:
        self._client = client
        self._file = file
        self._inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._reflectors = {
            kind: Reflector(client, kind, path, as_type, self._inbox.put) for kind, (path, as_type) in sources.items()
        }
        self._alive_path = f"{sources[NODES][0]}?limit=1"
        self._listed: dict[str, None] = {}
        self._known: dict[tuple[str, str], Stored] = {}

    def follow(
        self, stopped: threading.Event, until: float, missing: dict[str, str], on_ready: Callable[[], None]
    ) -> None:
        """Writes all there is, and then what changes. At least what there is is written, whatever the time."""
        for reflector in self._reflectors.values():
            reflector.start()
        try:
            self._begin(missing)
            on_ready()
            alive_at = time.monotonic() + ALIVE_S
            while not stopped.is_set() and time.monotonic() < until:
                self._receive(min(0.5, max(until - time.monotonic(), 0.0)))
                if time.monotonic() >= alive_at:
                    self._check_alive()
                    alive_at = time.monotonic() + ALIVE_S
            # What has come until now belongs to it.
            self._receive(0.0)
            self._check_alive()
        finally:
            for reflector in self._reflectors.values():
                reflector.close()

    def _begin(self, missing: dict[str, str]) -> None:
        until, waiting = time.monotonic() + LIST_WITHIN_S, []
        while self._listed.keys() < self._reflectors.keys():
            with suppress(queue.Empty):
                news = self._inbox.get(timeout=1.0)
                self._check(news)
                waiting.append(news)
                if isinstance(news, Listed):
                    self._listed[news.kind] = None
            if time.monotonic() > until:
                raise LostError(0, f"not all was listed within {LIST_WITHIN_S:.0f} s")
        ahead_ms = round(1000 * self._client.clock_ahead_s())
        write(self._file, Entry(_now_ms(), BEGIN, ahead_ms=ahead_ms))
        for kind, why in missing.items():
            write(self._file, Entry(_now_ms(), MISSING, kind, why=why))
        for news in waiting:
            self._take(news)
        write(self._file, Entry(_now_ms(), READY, kinds=tuple(self._reflectors)))
        self._file.flush()

    def _receive(self, wait_s: float) -> None:
        with suppress(queue.Empty):
            news = self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
            for _ in range(WRITES_MAX):
                self._check(news)
                if isinstance(news, Listed):
                    raise LostError(0, f"the watch of {news.kind} was broken for too long to go on with it")
                self._take(news)
                news = self._inbox.get_nowait()
        self._file.flush()

    def _check(self, news: News) -> None:
        if isinstance(news, Broken):
            if isinstance(news.error, UnauthorizedError):
                raise news.error
            raise LostError(0, str(news.error))

    def _check_alive(self) -> None:
        self._client.ask("GET", self._alive_path)
        write(self._file, Entry(_now_ms(), ALIVE))
        self._file.flush()

    def _take(self, news: News) -> None:
        match news:
            case Listed(kind=kind, objects=objects):
                for each in objects:
                    self._put(kind, each)
            case Changed(kind=kind, object=changed, gone=True):
                self._known.pop((kind, changed.metadata.key), None)
                write(self._file, Entry(_now_ms(), GONE, kind, msgspec.Raw(msgspec.json.encode(trimmed(changed)))))
            case Changed(kind=kind, object=changed):
                self._put(kind, changed)

    def _put(self, kind: str, it: Any) -> None:
        kept = trimmed(it)
        now = essence(kept)
        if self._known.get((kind, it.metadata.key)) == now:
            return
        self._known[kind, it.metadata.key] = now
        write(self._file, Entry(_now_ms(), THERE, kind, msgspec.Raw(msgspec.json.encode(kept))))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
