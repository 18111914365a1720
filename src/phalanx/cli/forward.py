"""`phalanx forward`: ports of a running task on this machine."""

from __future__ import annotations

import errno
import os
import re
import socket
import time
from typing import NamedTuple

import click

from phalanx.cli.client import NotFound, connect, job_path
from phalanx.cli.complete import job_argument
from phalanx.cli.context import current_context
from phalanx.cli.exit import Exit
from phalanx.cli.line import open_line
from phalanx.cli.outcome import FINAL, look, sentence_of
from phalanx.cli.tunnel import Tunnel
from phalanx.errors import PhalanxError

LOOK_S = 1.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Ports(NamedTuple):
    """A port of this machine, and the port of the task that it stands for."""

    local: int
    remote: int


class PortTaken(PhalanxError):  # noqa: N818
    """A port of this machine that cannot be listened on."""


@click.command()
@job_argument
@click.argument("ports", metavar="[LOCAL:]PORT")
@click.option("--task", "--rank", "rank", type=click.IntRange(0), default=0, show_default=True, help="Of which task.")
@click.option("--address", default=LOOPBACK[0], show_default=True, help="Where to listen on this machine.")
def forward(job: str, ports: str, rank: int, address: str) -> int:
    """Listen on a port of this machine, and forward connections to PORT of a task of the job ID.

    LOCAL 0 is any free port. Ends with the job: with 0 if it succeeded, 100 if it failed, 103 if it was cancelled, and
    101 if it no longer runs and is not over.
    """
    asked = ports_of(ports)
    client = connect()
    found = client.get(job_path(job))
    context = current_context()
    query = [("port", str(asked.remote)), ("rank", str(rank))]
    with open_line(context, found["id"], "forward", [*query, ("check", "true")]):
        # A caller that may not is told before anything is listened on.
        pass
    with listening(address, asked) as listener:
        local = listener.getsockname()[1]
        shown = f"[{address}]" if ":" in address else address
        told = f"{shown}:{local} is port {asked.remote} of task {rank} of job {found['id']}"
        click.echo(f"{told}, until it ends or Ctrl-C", err=True)
        if address not in LOOPBACK:
            click.echo(f"phalanx: every user that reaches {shown}:{local} reaches the job as you", err=True)
        tunnel = Tunnel(listener, lambda: open_line(context, found["id"], "forward", query))
        tunnel.begin()
        try:
            now = found
            while now["state"] == "running" and now["attempts"] == found["attempts"]:
                time.sleep(LOOK_S)
                now = look(client, found["id"]) or {"state": "gone", "attempts": 0}
        finally:
            tunnel.end()
    told = "was started again" if now["state"] == "running" else sentence_of(now["state"])
    click.echo(f"job {found['id']} {told}: forwarding has ended", err=True)
    if now["state"] == "gone":
        raise NotFound(f"there is no job '{found['id']}' any more")
    return FINAL.get(now["state"], Exit.JOB_NOT_FINISHED)


def ports_of(said: str) -> Ports:
    """Ports as they are said: `8888`, or `9000:8888`."""
    match = re.fullmatch(r"(?:([0-9]{1,5}):)?([0-9]{1,5})", said)
    if match:
        ports = Ports(int(match[1] or match[2]), int(match[2]))
        if ports.local <= 65535 and 1 <= ports.remote <= 65535:
            return ports
    raise click.UsageError(f"'{said}': expected PORT or LOCAL:PORT with ports up to 65535, such as 8888 or 9000:8888")


def listening(address: str, ports: Ports) -> socket.socket:
    """A socket that takes connections on this machine."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, ports.local), family=family)
    except socket.gaierror:
        raise click.UsageError(f"--address {address}: expected an address of this machine, such as 127.0.0.1") from None
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise click.UsageError(f"--address {address}: this machine has no such address") from None
        told = (
            "is in use"
            if error.errno == errno.EADDRINUSE
            else f"cannot be listened on: {os.strerror(error.errno or 0)}"
        )
        other = f"name another, as in 9000:{ports.remote}, or 0:{ports.remote} for a free one"
        raise PortTaken(f"port {ports.local} of {address} {told}; {other}") from None
