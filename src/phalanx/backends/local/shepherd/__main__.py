"""`shepherd FOLDER SOCKET`: looks after the attempt of a folder, unless another process does or it is over."""

from __future__ import annotations

import os
import signal
import socket
import sys

from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.host.kernel import adopt_orphans
from phalanx.backends.local.shepherd.shepherd import Shepherd


def main(path: str, handle: int) -> None:
    """Takes the attempt on. A twin, or one that comes too late, leaves without a word."""
    folder = AttemptFolder(path)
    lock = folder.lock()
    order = folder.order()
    if lock is None or order is None or folder.state() is not None:
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A user that ends the server from the keyboard, or logs out, does not mean the jobs.
        signal.signal(number, signal.SIG_IGN)
    # It came to us across an exec; it is not to go on to the tasks.
    os.set_inheritable(handle, False)
    os.chdir("/")
    os.umask(0o022)
    adopt_orphans()
    Shepherd(folder, order).run(socket.socket(fileno=handle))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
