"""`phalanx logs`: what the tasks of a job print."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from phalanx.cli.client import Client, Unreachable, connect, job_path
from phalanx.cli.complete import job_argument
from phalanx.cli.outcome import FINAL, look

LOOK_S = 0.2
LINE_BYTES = 200
"""A guess at the length of a line, for `--tail`: more is fetched than will be shown."""


@click.command()
@job_argument
@click.option("--rank", type=click.IntRange(0), default=0, show_default=True, help="The task.")
@click.option(
    "--stream", type=click.Choice(["out", "err"]), default="out", show_default=True, help="What it printed to."
)
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="An older attempt than the newest.")
@click.option("--tail", type=click.IntRange(0), metavar="LINES", help="Only the last lines.")
@click.option("-f", "--follow", is_flag=True, help="Wait for more until the job is over.")
def logs(job: str, rank: int, stream: str, attempt: int | None, tail: int | None, follow: bool) -> None:
    """Print what a task of the job ID has printed."""
    client = connect()
    if follow and attempt is None:
        follow_logs(client, job, rank, stream)
        return
    query: dict[str, str | int | bool | None] = {
        "rank": rank,
        "stream": stream,
        "attempt": attempt,
        "follow": follow or None,
    }
    if tail is not None:
        query["tail"] = tail * LINE_BYTES
    content = client.stream(job_path(job, "/logs"), **query)
    if tail is None or follow:
        for piece in content:
            _print(piece)
    else:
        _print(b"".join(b"".join(content).splitlines(keepends=True)[-tail:] if tail else []))


def follow_logs(client: Client, job: str, rank: int = 0, stream: str = "out") -> None:
    """Prints what a task prints, attempt after attempt, until the job is over. A server that restarts is waited for."""
    attempt, offset = 1, 0
    found: dict[str, Any] | None = client.get(job_path(job))
    while found is not None and (found["attempts"] >= attempt or found["state"] not in FINAL):
        if found["attempts"] < attempt:
            time.sleep(LOOK_S)
            found = look(client, job)
            continue
        query: dict[str, str | int | bool | None] = {
            "rank": rank,
            "stream": stream,
            "attempt": attempt,
            "offset": offset,
            "follow": True,
        }
        try:
            for piece in client.stream(job_path(job, "/logs"), **query):
                offset += len(piece)
                _print(piece)
        except Unreachable as error:
            click.echo(f"phalanx: {error}; waiting for it", err=True)
        else:
            attempt, offset = attempt + 1, 0
        found = look(client, job)


def _print(piece: bytes) -> None:
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
