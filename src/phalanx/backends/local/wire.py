"""Messages between server and shepherd: a line of JSON each, over a socket, some with open files attached."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from typing import Any

MESSAGE_BYTES_MAX = 16 << 20
FILES_MAX = 3
STUCK_S = 10.0
"""A peer that has not read for so long is not waited for any more."""

Message = dict[str, Any]


class Wire:
    """One end of a connection. Writing waits for a slow reader, but not for ever."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._unread = b""
        self.files: list[int] = []

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, message: Message, files: tuple[int, ...] = ()) -> bool:
        """Sends a message; False if the other end is gone."""
        line = json.dumps(message).encode() + b"\n"
        try:
            self._end.settimeout(STUCK_S)
            if files:
                sent = socket.send_fds(self._end, [line], list(files))
                self._end.sendall(line[sent:])
            else:
                self._end.sendall(line)
        except OSError:
            return False
        finally:
            # One that was closed here stays closed.
            with suppress(OSError):
                self._end.setblocking(False)
        return True

    def send_now(self, message: Message) -> bool:
        """Sends a short message that may be lost; False if the other end does not take it now, or is gone."""
        try:
            # The kernel takes what is so short as a whole, or nothing of it.
            return self._end.send(json.dumps(message).encode() + b"\n") > 0
        except OSError:
            return False

    def receive(self) -> list[Message] | None:
        """The messages that have come; None once the other end is gone. Files that came with them are in `files`.

        It never waits: with a timeout, a socket would wait for it, whatever the flags say.
        """
        try:
            data, files, _, _ = socket.recv_fds(self._end, 1 << 16, FILES_MAX)
        except BlockingIOError:
            return []
        except OSError:
            return None
        for handle in files:
            os.set_inheritable(handle, False)
        self.files += files
        if not data:
            return None
        *lines, self._unread = (self._unread + data).split(b"\n")
        if len(self._unread) > MESSAGE_BYTES_MAX:
            return None
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Closes this end."""
        for handle in self.files:
            os.close(handle)
        self.files = []
        self._end.close()


def listen_at(folder: str) -> socket.socket:
    """A socket named `control` in a folder. The name goes through an open folder: a socket's path is short by law."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        stop_listening(folder)
        end.bind(f"/proc/self/fd/{handle}/control")
        os.chmod(f"{folder}/control", 0o600)
    finally:
        os.close(handle)
    end.listen(64)
    return end


def stop_listening(folder: str) -> None:
    """Takes the name of the socket away."""
    with suppress(FileNotFoundError):
        os.unlink(f"{folder}/control")


def connect_to(folder: str, waits: bool = True) -> Wire | None:
    """A connection to the socket in a folder; None if no process listens there.

    With many connections not accepted yet, it waits for its turn, or raises BlockingIOError at once if it is not to.
    """
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    end.setblocking(waits)
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            end.connect(f"/proc/self/fd/{handle}/control")
        finally:
            os.close(handle)
    except BlockingIOError:
        end.close()
        raise
    except OSError:
        end.close()
        return None
    return Wire(end)
