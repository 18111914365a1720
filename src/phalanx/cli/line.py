"""A line into a running job over a web socket: what is typed goes one way, what is printed the other."""

from __future__ import annotations

import json
import os
import select
import shutil
import ssl
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlencode, urlsplit

from phalanx.cli.client import (
    BASE,
    NO_PHALANX,
    NotFound,
    Refused,
    ServerError,
    Unreachable,
    job_path,
    trusted,
    untrusted,
)
from phalanx.cli.context import Context
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

LOOK_S = 0.2
"""How often the size of the terminal is looked at."""

OPEN_S = 60.0
"""How long the server may take to open the line. It asks the supervisor of the attempt, on a node that may be busy."""

RIGHT_LOST = 1008
"""The code by which the server closes the line of a caller that may no longer use it."""

FEED_END_S = 1.0
"""How long a thread that passes input on may take to notice that it is not wanted any more."""


class LineError(PhalanxError):
    """A line that could not be used to its end."""


class Keys(Protocol):
    """What is typed, on its way to the job. None is typed after a user has left."""

    def passed_on(self, typed: bytes) -> bytes | None: ...


class AllKeys:
    """Everything is for the job."""

    def passed_on(self, typed: bytes) -> bytes | None:
        """What is typed, as it is."""
        return typed


def open_line(context: Context, job: str, what: str, query: Sequence[tuple[str, str]]) -> ClientConnection:
    """Opens a line of some kind, such as `exec`, into a job."""
    from websockets.exceptions import InvalidHandshake, InvalidStatus
    from websockets.sync.client import connect

    parts = urlsplit(context.addr)
    scheme = "wss" if parts.scheme == "https" else "ws"
    url = f"{scheme}://{parts.netloc}{parts.path}{BASE}{job_path(job, f'/{what}')}?{urlencode(query)}"
    headers = {"Authorization": f"Bearer {context.token}"} if context.token else {}
    try:
        trust = trusted(context) if scheme == "wss" else None
        return connect(url, additional_headers=headers, max_size=None, ssl=trust, open_timeout=OPEN_S)
    except InvalidStatus as error:
        raise _refusal(context, job, error.response.status_code, error.response.body or b"") from None
    except InvalidHandshake as error:
        raise ServerError(f"{context.addr}: {error}, {NO_PHALANX}") from None
    except ssl.SSLCertVerificationError as error:
        raise untrusted(context, error) from None
    except TimeoutError:
        raise Unreachable(f"{context.addr}: no answer within {OPEN_S:g} s; try again in a moment") from None
    except OSError as error:
        raise Unreachable(f"{context.addr}: {error.strerror or error}; start a server with `phalanx up`") from None


def _refusal(context: Context, job: str, status: int, body: bytes | bytearray) -> PhalanxError:
    try:
        message = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        if status == 403:
            # What a server says of an address that it does not have.
            return NotFound(f"there is no job '{job}', or the server is older than this verb")
        message = f"the server answered with status {status}"
    if status == 503:
        return Unreachable(f"{context.addr}: {message}")
    return NotFound(message) if status == 404 else Refused(message)


def is_terminal() -> bool:
    """Whether this is a terminal, both to type and to read."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def size_asked() -> list[tuple[str, str]]:
    """The size of the terminal, as the server is told."""
    size = shutil.get_terminal_size()
    return [("tty", f"{size.lines}x{size.columns}")]


def piped(line: ClientConnection) -> int:
    """Passes standard input on until it ends, and prints what comes; the exit code."""

    from websockets.exceptions import ConnectionClosed

    stdin = sys.stdin.fileno()
    over, end = os.pipe()

    def feed() -> None:
        # What is typed after the command has ended goes nowhere.
        with suppress(ConnectionClosed):
            while over not in select.select([stdin, over], [], [])[0]:
                data = os.read(stdin, 65536)
                line.send(data or json.dumps({"eof": True}))
                if not data:
                    return

    feeding = threading.Thread(target=feed, daemon=True)
    feeding.start()
    try:
        return _printed(line)
    finally:
        os.close(end)
        feeding.join(FEED_END_S)
        os.close(over)


def attended(line: ClientConnection, keys: Keys) -> int | None:
    """Passes keys on as they are pressed, with the terminal out of the way; the exit code, None if the user left."""
    import termios
    import tty

    from websockets.exceptions import ConnectionClosed

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    over, left = threading.Event(), threading.Event()

    def feed() -> None:
        size = shutil.get_terminal_size()
        with suppress(ConnectionClosed):
            while not over.is_set():
                if select.select([stdin], [], [], LOOK_S)[0]:
                    typed = keys.passed_on(os.read(stdin, 4096))
                    if typed is None:
                        left.set()
                        line.close()
                        return
                    if typed:
                        line.send(typed)
                if (now := shutil.get_terminal_size()) != size:
                    size = now
                    line.send(json.dumps({"resize": [size.lines, size.columns]}))

    tty.setraw(stdin, termios.TCSADRAIN)
    try:
        threading.Thread(target=feed, daemon=True).start()
        return _printed(line)
    except LineError:
        if left.is_set():
            return None
        raise
    finally:
        over.set()
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def _printed(line: ClientConnection) -> int:
    """Prints what comes; the exit code of the command."""
    from websockets.exceptions import ConnectionClosed

    try:
        while isinstance(message := line.recv(), bytes):
            sys.stdout.buffer.write(message)
            sys.stdout.buffer.flush()
    except ConnectionClosed as closed:
        if closed.rcvd is not None and closed.rcvd.code == RIGHT_LOST:
            raise Refused(f"{closed.rcvd.reason}; the connection was closed") from None
        raise LineError("the connection was lost before the command ended") from None
    told = json.loads(message)
    if "error" in told:
        raise LineError(told["error"])
    code = int(told["exit"])
    return code if code >= 0 else 128 - code
