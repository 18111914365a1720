"""`phalanx logs`: what the tasks of a job print."""

from __future__ import annotations

import sys

import click

from phalanx.cli.client import Client, NotFound, Unreachable, connect, job_path
from phalanx.cli.complete import job_argument
from phalanx.cli.outcome import FINAL, wait_for

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
    """Prints what a task prints, attempt after attempt, until the job is over."""
    attempt, offset = 0, 0
    while True:
        found = client.get(job_path(job))
        if found["attempts"] > attempt:
            attempt, offset = attempt + 1, 0
        elif found["state"] in FINAL:
            return
        else:
            _await_attempt(client, job, attempt)
            continue
        try:
            for piece in client.stream(
                job_path(job, "/logs"), rank=rank, stream=stream, attempt=attempt, offset=offset, follow=True
            ):
                offset += len(piece)
                _print(piece)
        except NotFound:
            continue
        except Unreachable as error:
            click.echo(f"phalanx: {error}; waiting for it", err=True)
            wait_for(client, job, timeout_s=1)
            attempt -= 1


def _await_attempt(client: Client, job: str, attempt: int) -> None:
    """Waits a moment for the next attempt, or for the end."""
    wait_for(client, job, timeout_s=0.5)


def _print(piece: bytes) -> None:
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
