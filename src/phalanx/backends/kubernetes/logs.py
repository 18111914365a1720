"""What tasks print, copied from their nodes by way of the API server into the folder of their attempt."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from phalanx.backends.kubernetes.pod import TASK
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError

FOLLOWED_MAX = 256
"""So many tasks are read while they run; those beyond are read once they have ended."""

CONNECT_S = 30.0
RETRY_FIRST_S, RETRY_MAX_S = 0.05, 2.0
PIECE = 1 << 16


@dataclass(slots=True)
class Followed:
    """A task whose prints are read. `over` is set once it has ended, `done` once all that it printed is here."""

    pod: str
    uid: str
    path: str
    over: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    line: socket.socket | None = None


class LogCollector:
    """Reads with a thread for each task. `arrived` is called, from any thread, when all of one is here."""

    def __init__(self, client: Client, path: Callable[[str], str], arrived: Callable[[], None]) -> None:
        self._client = client
        self._path = path
        self._arrived = arrived
        self._followed: dict[str, Followed] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def follow(self, pod: str, uid: str, path: str, over: bool) -> None:
        """Reads what a task prints, from where its file ends."""
        each = self._followed.setdefault(uid, Followed(pod, uid, path))
        if over:
            each.over.set()
        with self._lock:
            running = sum(
                1 for other in self._followed.values() if other.thread is not None and not other.done.is_set()
            )
            if each.thread is not None or (running >= FOLLOWED_MAX and not over):
                return
            each.thread = threading.Thread(target=self._read, args=(each,), name=f"log of {pod}", daemon=True)
        each.thread.start()

    def has_all(self, uid: str) -> bool:
        """Whether all that an ended task printed is here. Of one that never ran there is nothing."""
        each = self._followed.get(uid)
        return each is None or each.done.is_set()

    def forget(self, uid: str) -> None:
        """Ends reading a task that is no more."""
        each = self._followed.pop(uid, None)
        if each is not None:
            each.done.set()
            _cut(each)

    def close(self) -> None:
        """Ends all reading; a later server goes on where the files end."""
        self._closed.set()
        reading = [each.thread for each in self._followed.values() if each.thread is not None]
        for uid in list(self._followed):
            self.forget(uid)
        for thread in reading:
            thread.join(CONNECT_S)

    def _read(self, each: Followed) -> None:
        delay_s = RETRY_FIRST_S
        while not self._closed.is_set() and not each.done.is_set():
            # Of one that was over before it was read anew, a whole answer is all there is.
            was_over = each.over.is_set()
            is_whole, is_gone = self._read_on(each)
            if is_gone or (is_whole and (was_over or each.over.wait(RETRY_MAX_S))):
                break
            self._closed.wait(delay_s)
            delay_s = min(2 * delay_s, RETRY_MAX_S)
        each.done.set()
        if not self._closed.is_set():
            self._arrived()

    def _read_on(self, each: Followed) -> tuple[bool, bool]:
        """Reads to the end; whether that was a whole answer, and whether there is no such pod."""
        try:
            with contextlib.closing(self._client.open(CONNECT_S)) as connection:
                line = each.line = connection.sock
                # A task may print nothing for days; a dead peer is found out by the kernel.
                line.settimeout(None)
                line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                if each.done.is_set():
                    return False, True
                target = f"{self._path(each.pod)}/log?container={TASK}&follow=true"
                connection.request("GET", target, headers=self._headers())
                with contextlib.closing(connection.getresponse()) as response:
                    if response.status != http.client.OK:
                        return False, response.status == http.client.NOT_FOUND
                    self._copy(response, each)
                    return True, False
        except (OSError, http.client.HTTPException, ApiError, ValueError, AttributeError):
            return False, False
        finally:
            each.line = None

    def _copy(self, response: http.client.HTTPResponse, each: Followed) -> None:
        """Appends what is new: of what was read before, as much is left out as the file has."""
        handle = os.open(each.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "ab", buffering=0) as file:
            known = os.fstat(handle).st_size
            while piece := response.read1(PIECE):
                if known >= len(piece):
                    known -= len(piece)
                    continue
                file.write(piece[known:])
                known = 0

    def _headers(self) -> dict[str, str]:
        token = self._client.access.token()
        return {"Authorization": f"Bearer {token}"} if token else {}


def _cut(each: Followed) -> None:
    line = each.line
    if line is not None:
        # Only a shutdown wakes a thread that reads.
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
