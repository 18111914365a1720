"""Reflector: lists one kind of object and watches it from there, in a thread of its own.

One watch that begins with all objects there are costs the server least: it need not hold them at once. Where that
does not come to the end of them (an old server, an old etcd behind it), they are listed in pages from then on. A watch
that ends goes on from the last version that it told; where that is compacted (410) everything is listed again.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from phalanx.kube.api.client import WATCH_SILENCE_S, Client
from phalanx.kube.api.errors import ApiError, ForbiddenError, GoneError, NotFoundError, UnauthorizedError
from phalanx.kube.objects.meta import Bookmark, ListMetadata, Stored, Wire

PAGE = 2000
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 5.0

STREAM_SILENCE_S = 10.0
"""A watch that was to begin with all objects, and says nothing for so long before their end, was not understood."""

ALL_ARE_TOLD = "k8s.io/initial-events-end"
"""The annotation of the bookmark behind the last of them."""

T = TypeVar("T", bound=Stored)


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """All objects of a kind that there are: what is not among them is gone."""

    kind: str
    objects: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Changed(Generic[T]):
    """An object was created, changed or, with `gone`, deleted."""

    kind: str
    object: T
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Broken:
    """The API server refuses what cannot be done without: to tell of a kind, if it says which."""

    error: ApiError
    kind: str = ""


News = Listed[Any] | Changed[Any] | Broken


class WatchEvent(Wire, frozen=True):
    """One line of a watch, its object not yet parsed."""

    type: str
    object: msgspec.Raw


class Page(Wire, frozen=True):
    """One page of a list, its objects not yet parsed."""

    metadata: ListMetadata = ListMetadata()
    items: list[msgspec.Raw] | None = None


class Reflector(Generic[T]):
    """Tells `tell` of one kind of object, first of all there are and then of changes, until it is closed. `chosen` are
    the parameters, such as labelSelector, by which only some of them are.
    """

    def __init__(
        self,
        client: Client,
        kind: str,
        path: str,
        as_type: type[T],
        tell: Callable[[News], None],
        chosen: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.kind = kind
        self.lists = 0
        self._client = client
        self._path = path
        self._chosen = dict(chosen)
        self._as_type: type[T] = as_type
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(as_type)
        self._tell = tell
        self._closed = threading.Event()
        self._connection: http.client.HTTPConnection | None = None
        self._version = ""
        self._streams = True
        self._thread = threading.Thread(target=self._run, name=f"watch {kind}", daemon=True)

    def start(self) -> None:
        """Begins to list and watch."""
        self._thread.start()

    def close(self) -> None:
        """Ends the watch, and waits for its thread."""
        self._closed.set()
        self.cut()
        self._thread.join()

    def cut(self) -> None:
        """Breaks the connection of the watch: it goes on by another."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            # Only a shutdown wakes a thread that reads.
            try:
                connection.sock.shutdown(2)
            except OSError:
                return

    def _run(self) -> None:
        delay_s = RETRY_FIRST_S
        while not self._closed.is_set():
            try:
                self._go_on()
                delay_s = RETRY_FIRST_S
            except GoneError:
                self._version = ""
            except ApiError as error:
                # A server that was just restarted may know neither rights nor custom resources for a while.
                is_lasting = isinstance(error, ForbiddenError | NotFoundError) and not self.lists
                if is_lasting or isinstance(error, UnauthorizedError):
                    self._tell(Broken(error, self.kind))
                    return
                self._closed.wait(delay_s)
                delay_s = min(2 * delay_s, RETRY_MAX_S)

    def _go_on(self) -> None:
        if self._version:
            self._watch()
        elif self._streams:
            self._stream()
        else:
            self._list()

    def _list(self) -> None:
        objects: list[T] = []
        query = {**self._chosen, "limit": str(PAGE)}
        while True:
            page = self._client.get(self._path, Page, **query)
            objects += filter(None, map(self._decoded, page.items or ()))
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
        self._listed(tuple(objects), page.metadata.resource_version)

    def _listed(self, objects: tuple[T, ...], version: str) -> None:
        self.lists += 1
        self._version = version
        self._tell(Listed(self.kind, objects))

    def _stream(self) -> None:
        asked = {**self._chosen, "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        with self._connected(STREAM_SILENCE_S) as connection:
            lines = self._client.watch(connection, self._path, "", **asked)
            try:
                self._streams = self._take_all(lines)
            except (UnauthorizedError, ForbiddenError, NotFoundError):
                raise
            except (ApiError, msgspec.MsgspecError):
                self._streams = False
            if self._streams:
                if connection.sock is not None:
                    connection.sock.settimeout(WATCH_SILENCE_S)
                self._follow(lines)

    def _take_all(self, lines: Iterator[bytes]) -> bool:
        """Takes the first objects of a watch as a list; False where it does not begin with all there are."""
        found: dict[str, T] = {}
        for line in self._while_open(lines):
            event = msgspec.json.decode(line, type=WatchEvent)
            written = msgspec.json.decode(event.object, type=Bookmark)
            if event.type == "ERROR":
                raise _error(written)
            if event.type == "BOOKMARK":
                if ALL_ARE_TOLD not in (written.metadata.annotations or {}):
                    return False
                # In the order of a list.
                self._listed(tuple(found[key] for key in sorted(found)), written.metadata.resource_version)
                return True
            decoded = self._decoded(event.object) if event.type != "DELETED" else None
            found.pop(written.metadata.key, None)
            if decoded is not None:
                found[written.metadata.key] = decoded
        return False

    def _watch(self) -> None:
        with self._connected(WATCH_SILENCE_S) as connection:
            self._follow(self._client.watch(connection, self._path, self._version, **self._chosen))

    @contextmanager
    def _connected(self, silence_s: float) -> Iterator[http.client.HTTPConnection]:
        connection = self._connection = self._client.open(silence_s)
        try:
            yield connection
        finally:
            self._connection = None
            connection.close()

    def _while_open(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        # What was closed before there was a connection did not break it.
        while not self._closed.is_set():
            line = next(lines, None)
            if line is None:
                return
            yield line

    def _follow(self, lines: Iterator[bytes]) -> None:
        for line in self._while_open(lines):
            try:
                self._take(msgspec.json.decode(line, type=WatchEvent))
            except msgspec.MsgspecError:
                # A line that breaks off: the watch goes on behind the last whole one.
                return

    def _take(self, event: WatchEvent) -> None:
        match event.type:
            case "BOOKMARK":
                self._version = msgspec.json.decode(event.object, type=Bookmark).metadata.resource_version
            case "ERROR":
                raise _error(msgspec.json.decode(event.object, type=Bookmark))
            case _:
                self._change(event)

    def _change(self, event: WatchEvent) -> None:
        changed = self._decoded(event.object)
        if changed is None:
            # As if it were not there: it may have been another before.
            metadata = msgspec.json.decode(event.object, type=Bookmark).metadata
            changed, is_gone = self._as_type(metadata=metadata), True
        else:
            is_gone = event.type == "DELETED"
        self._version = changed.metadata.resource_version
        self._tell(Changed(self.kind, changed, is_gone))

    def _decoded(self, written: msgspec.Raw) -> T | None:
        """An object; None for one whose fields are not what they should be, which a custom resource may be."""
        try:
            return self._decoder.decode(written)
        except msgspec.ValidationError:
            return None


def _error(status: Bookmark) -> ApiError:
    return (GoneError if status.code == 410 else ApiError)(status.code, status.message)
