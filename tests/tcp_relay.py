"""A relay between a client and a server that can fall silent: connections stand, and nothing comes through any more."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType


class Relay:
    """Passes on what comes until `silence` is called; connections that are made after that are passed on again."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self._open: list[socket.socket] = []
        self._silent: list[threading.Event] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Only a shutdown wakes a thread that waits for connections.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._thread.join()

    def cut(self) -> None:
        """Breaks all connections that there are."""
        for each in tuple(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def silence(self) -> None:
        """From now on nothing comes through the connections that there are, and none of them is closed."""
        for each in self._silent:
            each.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            silent = threading.Event()
            self._open += (client, server)
            self._silent.append(silent)
            self.connections += 1
            threading.Thread(target=self._pass_on, args=(client, server, silent), daemon=True).start()

    @staticmethod
    def _pass_on(client: socket.socket, server: socket.socket, silent: threading.Event) -> None:
        with client, server, selectors.DefaultSelector() as selector, contextlib.suppress(OSError):
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in selector.select():
                    assert isinstance(key.fileobj, socket.socket)
                    read = key.fileobj.recv(65536)
                    if not read:
                        return
                    if not silent.is_set():
                        key.data.sendall(read)
