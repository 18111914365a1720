"""Which process listens on a port, and when it is safe to say so."""

from __future__ import annotations

import os
import socket
import time
from contextlib import closing

import pytest

from phalanx.backends.local.host.ports import Listener, held_of, listeners, own_listener

OWN, OTHER = 1, 2


def at(host: str, inode: int) -> Listener:
    return Listener(socket.AF_INET6 if ":" in host else socket.AF_INET, host, 80, inode)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_what_this_process_listens_on_is_found_by_its_socket(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.create_server((host, 0), family=family)) as end:
        port = end.getsockname()[1]
        [found] = listeners(port)
        assert found.inode == os.fstat(end.fileno()).st_ino
        assert found.host == host
        assert held_of({found.inode, OWN}, [os.getpid()], time.monotonic() + 10) == {found.inode}
        with closing(socket.create_connection(found.address, 10)):
            pass
    assert listeners(port) == []


@pytest.mark.parametrize(
    ("found", "reached"),
    [
        ([], None),
        ([at("127.0.0.1", OTHER)], None),
        ([at("127.0.0.1", OWN)], "127.0.0.1"),
        ([at("0.0.0.0", OWN)], "127.0.0.1"),
        ([at("::", OWN)], "::1"),
        ([at("10.0.0.5", OWN)], "10.0.0.5"),
        ([at("127.0.0.2", OTHER), at("127.0.0.1", OWN)], "127.0.0.1"),
        ([at("127.0.0.1", OTHER), at("0.0.0.0", OWN)], None),
        ([at("127.0.0.1", OWN), at("127.0.0.1", OTHER)], None),
        ([at("127.0.0.1", OWN), at("0.0.0.0", OTHER)], None),
        ([at("127.0.0.1", OWN), at("::", OTHER)], None),
    ],
)
def test_a_listener_is_ones_own_only_if_no_other_could_be_reached_instead(
    found: list[Listener], reached: str | None
) -> None:
    listener = own_listener(found, {OWN})
    assert (listener.address[0] if listener else None) == reached


def test_sockets_are_looked_for_until_a_moment_and_no_longer() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as end:
        inode = os.fstat(end.fileno()).st_ino
        assert held_of({inode}, [os.getpid()], time.monotonic() - 1) == set()
