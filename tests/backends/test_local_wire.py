"""Messages between server and shepherd: who hears does not wait, nor who sends what may be lost."""

from __future__ import annotations

import socket
import time

from phalanx.backends.local.wire import Wire

AT_ONCE_S = 1.0


def test_hearing_never_waits() -> None:
    ours, theirs = socket.socketpair()
    wire, other = Wire(ours), Wire(theirs)
    before_s = time.monotonic()
    assert wire.receive() == []
    assert other.send({"do": "watch"})
    assert wire.receive() == [{"do": "watch"}]
    assert wire.receive() == []
    assert time.monotonic() - before_s < AT_ONCE_S
    other.close()
    assert wire.receive() is None
    wire.close()
    assert not wire.send({"exit": 0})
    assert not wire.send_now({"exit": 0})


def test_what_may_be_lost_is_sent_whole_or_not_at_all_and_at_once() -> None:
    ours, theirs = socket.socketpair()
    wire, other = Wire(ours), Wire(theirs)
    message = {"do": "resize terminal", "rank": 0, "rows": 24, "columns": 80}
    before_s = time.monotonic()
    sent = 0
    while wire.send_now(message):
        sent += 1
    assert time.monotonic() - before_s < AT_ONCE_S
    heard = 0
    while messages := other.receive():
        assert all(each == message for each in messages)
        heard += len(messages)
    assert heard == sent > 0
    wire.close()
    other.close()
