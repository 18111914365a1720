"""The process that keeps a rank's memory while trainers come and go.

It is started by path, not as a module, and uses the standard library alone: it costs a few megabytes and a few
milliseconds, and does not load torch. It hands out anonymous shared memory (memfd) over a socket in the abstract
namespace. Nothing of it has a name in any file system, so nothing can be left behind: when this process ends, in
whatever way, the kernel frees the memory as soon as the last trainer has let go of it.

A trainer *holds* the memory as long as its connection is open, and there is one holder at a time. The process ends when
it is told that the job is over, or when no trainer has held the memory for `linger_s`.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import sys
import time
from typing import Any

MESSAGE_BYTES_MAX = 1 << 16


class Keeping:
    """The segments by name, and the trainer that holds them."""

    def __init__(self, listener: socket.socket, linger_s: float) -> None:
        self._listener = listener
        self._linger_s = linger_s
        self._segments: dict[str, int] = {}
        self._holder: tuple[socket.socket, int] | None = None
        self._is_awaited = False
        self._idle_since_s = time.monotonic()
        self._over = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)

    def run(self) -> None:
        """Serves until the job is over or no trainer comes any more."""
        while not self._over and not self._is_forsaken():
            for key, _ in self._selector.select(timeout=min(self._linger_s, 1.0)):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._serve(key.fileobj)

    def _is_forsaken(self) -> bool:
        return self._holder is None and time.monotonic() - self._idle_since_s > self._linger_s

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        # Abstract sockets have no permissions: any user of this machine can connect.
        if struct.unpack("3i", credentials)[1] != os.getuid():
            client.close()
            return
        self._selector.register(client, selectors.EVENT_READ)

    def _serve(self, client: socket.socket) -> None:
        try:
            message = client.recv(MESSAGE_BYTES_MAX)
        except OSError:
            message = b""
        if not message:
            self._part_from(client)
            return
        reply, fds = self._answer(client, json.loads(message))
        try:
            socket.send_fds(client, [json.dumps(reply).encode()], fds)
        except OSError:
            self._part_from(client)

    def _part_from(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        client.close()
        if self._holder is not None and self._holder[0] is client:
            self._holder = None
            self._idle_since_s = time.monotonic()

    def _answer(self, client: socket.socket, request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        if request["do"] == "list":
            return {"segments": {name: os.fstat(fd).st_size for name, fd in self._segments.items()}}, []
        if request["do"] == "hold":
            self._is_awaited = self._holder is not None
            if self._holder is not None:
                return {"held_by": self._holder[1]}, []
            self._holder = (client, request["pid"])
            return {"pid": os.getpid()}, []
        if request["do"] == "awaited":
            return {"awaited": self._is_awaited}, []
        if self._holder is None or self._holder[0] is not client:
            return {"error": "not the holder"}, []
        return self._obey(request)

    def _obey(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        name = request.get("name", "")
        if request["do"] == "end":
            self._over = True
        elif request["do"] == "leave" and self._holder is not None:
            # What shares the hold has it still.
            self._holder = (self._holder[0], 0)
        elif request["do"] == "drop" and name in self._segments:
            os.close(self._segments.pop(name))
        elif request["do"] == "create":
            if name in self._segments:
                os.close(self._segments.pop(name))
            self._segments[name] = os.memfd_create(f"phalanx-{name}", os.MFD_CLOEXEC)
            os.ftruncate(self._segments[name], request["size"])
            return {}, [self._segments[name]]
        elif request["do"] == "open":
            return ({}, [self._segments[name]]) if name in self._segments else ({"error": "no such segment"}, [])
        return {}, []


def main() -> None:
    """`keeper_process.py ADDRESS LINGER_S`: says "ready" or "taken" on its standard output, then serves."""
    address, linger_s = sys.argv[1], float(sys.argv[2])
    # Twice removed from the trainer: no launcher that ends the trainer's children or its process group finds this one.
    if os.fork():
        os._exit(0)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(b"\0" + address.encode())
    except OSError:
        os.write(1, b"taken\n")
        return
    listener.listen(8)
    os.write(1, b"ready\n")
    silence = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(silence, standard)
    Keeping(listener, linger_s).run()


if __name__ == "__main__":
    main()
