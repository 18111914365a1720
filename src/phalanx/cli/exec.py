"""`phalanx exec`: a command beside a running task."""

from __future__ import annotations

import json
import os
import select
import shutil
import ssl
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import click

from phalanx.cli.client import BASE, NotFound, Refused, Unreachable, job_path, trusted, untrusted
from phalanx.cli.complete import job_argument
from phalanx.cli.context import Context, current_context
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection


LOOK_S = 0.2
"""How often the size of the terminal is looked at."""

RIGHT_LOST = 1008
"""The code by which the server closes the line of a caller that may no longer run the command."""

FEED_END_S = 1.0
"""How long whoever passes input on may take to notice that nobody wants it any more."""


class ExecError(PhalanxError):
    """A command that could not be run."""


@click.command(context_settings={"ignore_unknown_options": True})
@job_argument
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option("--rank", "--task", type=click.IntRange(0), default=0, show_default=True, help="Beside which task.")
def exec(job: str, command: tuple[str, ...], rank: int) -> int:  # noqa: A001
    """Run COMMAND (a shell, if none is given) beside a task of the job ID, in its surroundings. It is audited."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    argv = command or ("sh", "-i") if is_terminal else command or ("sh",)
    with _connect(current_context(), job, rank, argv, is_terminal) as line:
        return _attended(line) if is_terminal else _piped(line)


def _connect(context: Context, job: str, rank: int, argv: tuple[str, ...], is_terminal: bool) -> ClientConnection:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    query = [("rank", str(rank)), *(("arg", word) for word in argv)]
    if is_terminal:
        size = shutil.get_terminal_size()
        query.append(("tty", f"{size.lines}x{size.columns}"))
    parts = urlsplit(context.addr)
    scheme = "wss" if parts.scheme == "https" else "ws"
    url = f"{scheme}://{parts.netloc}{parts.path}{BASE}{job_path(job, '/exec')}?{urlencode(query)}"
    headers = {"Authorization": f"Bearer {context.token}"} if context.token else {}
    try:
        trust = trusted(context) if scheme == "wss" else None
        return connect(url, additional_headers=headers, max_size=None, ssl=trust)
    except InvalidStatus as error:
        raise _refusal(error.response.status_code, error.response.body or b"") from None
    except ssl.SSLCertVerificationError as error:
        raise untrusted(context, error) from None
    except OSError as error:
        raise Unreachable(f"{context.addr}: {error.strerror or error}; start a server with `phalanx up`") from None


def _refusal(status: int, body: bytes | bytearray) -> PhalanxError:
    try:
        message = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        message = f"the server answered with status {status}"
    return NotFound(message) if status == 404 else Refused(message)


def _piped(line: ClientConnection) -> int:
    """Passes standard input on until it ends, and prints what comes."""

    from websockets.exceptions import ConnectionClosed

    stdin = sys.stdin.fileno()
    over, end = os.pipe()

    def feed() -> None:
        # What is typed after the command has ended is for nobody.
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


def _attended(line: ClientConnection) -> int:
    """Passes keys on as they are pressed, with the terminal out of the way."""
    import termios
    import tty

    from websockets.exceptions import ConnectionClosed

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    over = threading.Event()

    def feed() -> None:
        size = shutil.get_terminal_size()
        with suppress(ConnectionClosed):
            while not over.is_set():
                if select.select([stdin], [], [], LOOK_S)[0]:
                    line.send(os.read(stdin, 4096))
                if (now := shutil.get_terminal_size()) != size:
                    size = now
                    line.send(json.dumps({"resize": [size.lines, size.columns]}))

    tty.setraw(stdin)
    try:
        threading.Thread(target=feed, daemon=True).start()
        return _printed(line)
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
            raise Refused(f"{closed.rcvd.reason}; the command was hung up") from None
        raise ExecError("the line broke before the command ended") from None
    told = json.loads(message)
    if "error" in told:
        raise ExecError(told["error"])
    code = int(told["exit"])
    return code if code >= 0 else 128 - code
