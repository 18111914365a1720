"""Which ranks have ended: each holds a connection that the kernel closes when its process ends, in whatever way.

Nothing is concluded from silence. A rank that computes for minutes, or is frozen, keeps its connection; one that was
killed loses it at once. Only the loss of a whole machine closes nothing, and is left to the time-outs.

Every rank is connected to rank 0, which passes on what it sees; a rank that loses rank 0 sees that by itself. It all
happens in a thread, since the main thread may be in a collective that never returns.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Collection
from functools import partial

from phalanx.train.checkpoint.copies.forks import close_in_forks

TOKEN_BYTES = 32
MESSAGE = struct.Struct("<?I")
"""Whether a rank ended by surprise, and its number."""

HELLO = struct.Struct("<I")
CONNECT_TIMEOUT_S = 10.0
HELLO_TIMEOUT_S = 1.0
BACKLOG = 4096


class Presence:
    """The ranks that are known to have ended: as agreed, as they say when they leave, or by surprise."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._ended: set[int] = set()
        self._lost: set[int] = set()
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, socket.socket] = {}
        self._on_loss: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._is_over = False
        self._wake: socket.socket | None = None

    @property
    def ended(self) -> Collection[int]:
        """Those that will say nothing any more."""
        with self._lock:
            return frozenset(self._ended)

    @property
    def lost(self) -> Collection[int]:
        """Those of them that ended by surprise."""
        with self._lock:
            return frozenset(self._lost)

    def on_loss(self, tell: Callable[[], None]) -> None:
        """Has a function called, in another thread, whenever a rank has ended by surprise."""
        self._on_loss = tell
        if self.lost:
            tell()

    def leave(self) -> None:
        """Says that this process ends, and as agreed."""
        for connection in list(self._connections.values()):
            with contextlib.suppress(OSError):
                connection.send(MESSAGE.pack(False, self._rank))

    def close(self) -> None:
        """Watches no more, and lets the other ranks see that. Without `leave` before it, this rank ends by surprise."""
        if self._wake is not None:
            self._wake.close()
            self._wake = None

    def _start(self) -> None:
        self._wake, woken = socket.socketpair()
        self._selector.register(woken, selectors.EVENT_READ, self._stop)
        threading.Thread(target=self._run, daemon=True, name="presence").start()

    def _run(self) -> None:
        while not self._is_over:
            for key, _ in self._selector.select():
                key.data()
        for each in list(self._selector.get_map().values()):
            if isinstance(each.fileobj, socket.socket):
                each.fileobj.close()
        self._selector.close()

    def _stop(self) -> None:
        self._is_over = True

    def _watch(self, rank: int, connection: socket.socket) -> None:
        close_in_forks(connection)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.settimeout(None)
        for each in sorted(self.ended):
            connection.send(MESSAGE.pack(each in self.lost, each))
        self._connections[rank] = connection
        self._selector.register(connection, selectors.EVENT_READ, partial(self._hear, rank, connection))

    def _hear(self, rank: int, connection: socket.socket) -> None:
        try:
            message = connection.recv(MESSAGE.size, socket.MSG_WAITALL)
        except OSError:
            message = b""
        if len(message) == MESSAGE.size:
            is_lost, whose = MESSAGE.unpack(message)
            self._note(whose, is_lost)
            return
        self._selector.unregister(connection)
        self._connections.pop(rank).close()
        if rank not in self.ended:
            self._note(rank, is_lost=True)

    def _note(self, rank: int, is_lost: bool) -> None:
        with self._lock:
            self._ended.add(rank)
            if is_lost:
                self._lost.add(rank)
        for connection in list(self._connections.values()) if self._rank == 0 else ():
            with contextlib.suppress(OSError):
                connection.send(MESSAGE.pack(is_lost, rank))
        if is_lost:
            self._on_loss()


class Chair(Presence):
    """Rank 0's: takes the connections of all other ranks."""

    def __init__(self, host: str, token: str) -> None:
        super().__init__(0)
        self._token = token.encode()
        self._listener = socket.create_server((host, 0), backlog=BACKLOG)
        self.address: tuple[str, int] = (host, self._listener.getsockname()[1])
        close_in_forks(self._listener)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.settimeout(HELLO_TIMEOUT_S)
            rank = self._greeted(connection)
            if rank is None:
                connection.close()
            else:
                self._watch(rank, connection)

    def _greeted(self, connection: socket.socket) -> int | None:
        """The rank at the other end of a connection; None if it is none of this job."""
        try:
            hello = connection.recv(TOKEN_BYTES + HELLO.size, socket.MSG_WAITALL)
        except OSError:
            return None
        if len(hello) != TOKEN_BYTES + HELLO.size or not hmac.compare_digest(hello[:TOKEN_BYTES], self._token):
            return None
        rank: int = HELLO.unpack(hello[TOKEN_BYTES:])[0]
        return rank


class Member(Presence):
    """That of any other rank."""

    def __init__(self, rank: int, address: tuple[str, int], token: str) -> None:
        super().__init__(rank)
        connection = socket.create_connection(address, timeout=CONNECT_TIMEOUT_S)
        connection.sendall(token.encode() + HELLO.pack(rank))
        self._watch(0, connection)
        self._start()


def reachable_host() -> str:
    """The address of this machine in the network that leads to the other ranks."""
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # Nothing is sent; the kernel only picks the way.
            probe.connect((master, 9))
            host: str = probe.getsockname()[0]
            return host
    except OSError:
        return "127.0.0.1"
