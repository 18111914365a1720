"""`driver FOLDER ADDRESS HANDLE`: talks to Ray for a server, and goes on when that ends, as long as gangs run."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import sys

from phalanx.backends.local.wire import Wire, listen_at

LOCK_S = 60.0
LOOK_S = 0.05


def main(folder: str, address: str, handle: int) -> int:
    """Serves a folder; one driver at a time."""
    os.set_inheritable(handle, False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return asyncio.run(_serve(folder, address, Wire(socket.socket(fileno=handle))))


async def _serve(folder: str, address: str, first: Wire) -> int:
    lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(int(LOCK_S / LOOK_S)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            await asyncio.sleep(LOOK_S)
    else:
        return 1
    door = listen_at(folder)
    door.setblocking(False)
    # Ray takes a second to import; a server that calls meanwhile is heard.
    from phalanx.backends.ray.driver.service import Service

    await Service(address, door, first).run()
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    # Not by the interpreter's end: a thread may wait for an answer of Ray that does not come.
    os._exit(code)
