"""Unix sockets in the data folder, however long its path is."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ADDRESS_MAX = 100
"""The kernel takes addresses of at most 107 bytes."""


def bind_unix(path: Path) -> socket.socket:
    """A socket that listens there, for this user only."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_address(path) as address:
        listener.bind(address)
    # A writer here can do everything: only this user may.
    path.chmod(0o600)
    listener.listen(128)
    return listener


@contextmanager
def short_address(path: Path) -> Iterator[str]:
    """An address of a path that is short enough, while it is needed."""
    if len(os.fsencode(path)) <= ADDRESS_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
