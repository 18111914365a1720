"""Which process listens on a port, by the kernel's own tables: proc(5), /proc/net/tcp and /proc/PID/fd."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Container, Iterable, Sequence, Set
from contextlib import suppress
from typing import NamedTuple

_TABLES = ((socket.AF_INET, "/proc/self/net/tcp"), (socket.AF_INET6, "/proc/self/net/tcp6"))
_LISTEN = "0A"
_ADDRESS, _STATE, _INODE = 1, 3, 9
"""Columns of the tables."""

_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Listener(NamedTuple):
    """A socket that takes connections."""

    family: int
    host: str
    port: int
    inode: int

    @property
    def address(self) -> tuple[str, int]:
        """Where it is reached from this machine."""
        return _ANY.get(self.host, self.host), self.port


def listeners(port: int) -> list[Listener]:
    """All sockets that take connections on a port of this machine."""
    found: list[Listener] = []
    for family, path in _TABLES:
        try:
            with open(path) as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except FileNotFoundError:
            continue
        for row in rows:
            host, _, number = row[_ADDRESS].partition(":")
            if row[_STATE] == _LISTEN and int(number, 16) == port:
                found.append(Listener(family, _host(host, family), port, int(row[_INODE])))
    return found


def _host(text: str, family: int) -> str:
    """An address as the kernel writes it: words of 32 bits, each in the order of this machine."""
    words = (int(text[at : at + 8], 16) for at in range(0, len(text), 8))
    return socket.inet_ntop(family, b"".join(struct.pack("=I", word) for word in words))


def own_listener(found: Sequence[Listener], own: Container[int]) -> Listener | None:
    """Of the listeners on a port one with an inode that is our own, and that no other could be taken for.

    The kernel connects to the listener with the very address, or to one with any; of several that share a port it
    takes one by chance. So none of those may be another's.
    """
    for listener in found:
        rivals = [each for each in found if each.host in (listener.host, listener.address[0], *_ANY)]
        if listener.inode in own and all(each.inode in own for each in rivals):
            return listener
    return None


def held_of(inodes: Set[int], pids: Iterable[int], until_s: float) -> set[int]:
    """Of some sockets those that processes have open, as far as they are found by a moment (`time.monotonic`)."""
    found: set[int] = set()
    for pid in pids:
        # One that has gone, or keeps others out, has none that we could speak for.
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as files:
            for file in files:
                if found == inodes or time.monotonic() > until_s:
                    return found
                with suppress(FileNotFoundError):
                    link = os.readlink(file.path)
                    if link.startswith("socket:[") and (inode := int(link[8:-1])) in inodes:
                        found.add(inode)
    return found
