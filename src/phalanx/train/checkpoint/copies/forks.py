"""Connections whose end tells that this process has ended: a child that was forked must not hold them open.

A process that loads data is such a child, and may live on for seconds.
"""

from __future__ import annotations

import os
import socket
from weakref import WeakSet

_own: WeakSet[socket.socket] = WeakSet()


def close_in_forks(connection: socket.socket) -> None:
    """Has a connection closed in every child that is forked from now on."""
    _own.add(connection)


def _close_all() -> None:
    for connection in list(_own):
        connection.close()


os.register_at_fork(after_in_child=_close_all)
