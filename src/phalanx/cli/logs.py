"""`phalanx logs`: what the tasks of a job print."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import Any, BinaryIO, NamedTuple

import click

from phalanx.cli.arrays import expanded
from phalanx.cli.client import Client, NotFound, Refused, Unreachable, connect, job_path
from phalanx.cli.complete import job_argument
from phalanx.cli.log_lines import Printer, Wanted, follow_lines, print_lines
from phalanx.cli.outcome import FINAL, Patience, look, sentence_of
from phalanx.cli.when import clock, past
from phalanx.errors import PhalanxError

LOOK_S = 0.2
TAIL_MAX = 1_000_000


class Printed(NamedTuple):
    """What is read of a job: of which task, what it printed to, and where that is shown."""

    job: str
    rank: int
    stream: str
    shown: BinaryIO

    def query(self, **more: str | int | bool | None) -> dict[str, str | int | bool | None]:
        return {"rank": self.rank, "stream": self.stream, **more}

    def show(self, piece: bytes) -> None:
        self.shown.write(piece)
        self.shown.flush()


@click.command()
@job_argument
@click.option("--rank", "--task", type=click.IntRange(0), metavar="N", help="Number of the task.  [default: 0]")
@click.option(
    "--all-ranks", is_flag=True, help="Print the lines of all tasks in the order of time, each preceded by its task."
)
@click.option(
    "--stream",
    type=click.Choice(["out", "err"]),
    help="Print only stdout or only stderr. Default: both, each to the same stream here.",
)
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Number of the attempt. Default: the newest.")
@click.option("--timestamps", is_flag=True, help="Print the time of each line, in UTC.")
@click.option(
    "--since", metavar="TIME", default="", help="Print only lines written since then: 10m, 24h, 2026-01-31T08:00Z."
)
@click.option("--tail", type=click.IntRange(0, TAIL_MAX), metavar="LINES", help="Print only the last lines.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the job has ended.")
def logs(
    job: str,
    rank: int | None,
    all_ranks: bool,
    stream: str | None,
    attempt: int | None,
    timestamps: bool,
    since: str,
    tail: int | None,
    follow: bool,
) -> None:
    """Print the output of a task of the job ID; of an array, that of each member in turn.

    The time of a line may be up to 50 ms late if many lines were written at once.
    """
    if all_ranks and rank is not None:
        raise click.UsageError("--all-ranks is all tasks, and --rank is one: give one of them")
    since_ms = past(since, "--since") if since else None
    as_lines = all_ranks or timestamps or since_ms is not None or tail is not None
    client = connect()
    members = expanded(client, job)
    for member in members:
        if members != [job]:
            click.echo(f"==> {member} <==", err=True)
        with _told_of_one(alone=members == [job]):
            if as_lines:
                task = None if all_ranks else rank or 0
                wanted = Wanted(member, task, stream, attempt, since_ms, tail)
                _as_lines(client, wanted, Printer(all_ranks, timestamps, apart=stream is None), follow)
            else:
                _as_it_is(client, _printed(member, rank or 0, stream), attempt, follow)


def _as_lines(client: Client, wanted: Wanted, printer: Printer, follow: bool) -> None:
    if follow:
        follow_lines(client, wanted, printer)
        return
    print_lines(client, wanted, printer)
    if not printer.count and wanted.since_ms is not None:
        click.echo(f"nothing was printed since {clock(wanted.since_ms)}", err=True)
    elif not printer.count and wanted.tail != 0:
        _say_why_nothing(client, wanted.job)


def _printed(job: str, rank: int, stream: str | None) -> list[Printed]:
    out, err = sys.stdout.buffer, sys.stderr.buffer
    if stream:
        return [Printed(job, rank, stream, out)]
    return [Printed(job, rank, "out", out), Printed(job, rank, "err", err)]


def _as_it_is(client: Client, wanted: list[Printed], attempt: int | None, follow: bool) -> None:
    """Prints it byte by byte as the task did."""
    if not follow:
        _print(client, wanted, attempt)
    elif attempt is None:
        _together(client, wanted, _follow)
    else:
        _together(client, wanted, partial(_follow_one, attempt=attempt))


@contextmanager
def _told_of_one(alone: bool) -> Iterator[None]:
    """What is wrong with one member of an array, such as that it has not started, keeps none of the others back."""
    try:
        yield
    except (NotFound, Refused) as error:
        if alone:
            raise
        click.echo(f"phalanx: {error}", err=True)


def _print(client: Client, wanted: list[Printed], attempt: int | None) -> None:
    if not sum(_show(client, printed, attempt) for printed in wanted):
        _say_why_nothing(client, wanted[0].job)


def follow_logs(client: Client, job: str) -> None:
    """Prints what the first task of a job prints, attempt after attempt, until the job is over."""
    wanted = [Printed(job, 0, "out", sys.stdout.buffer), Printed(job, 0, "err", sys.stderr.buffer)]
    _together(client, wanted, _follow)


def _say_why_nothing(client: Client, job: str) -> None:
    found = client.get(job_path(job))
    told = f": {found['end_reason']}" if found["end_reason"] not in ("", found["state"]) else ""
    click.echo(f"nothing was printed; job {found['id']} {sentence_of(found['state'])}{told}", err=True)


def _show(client: Client, printed: Printed, attempt: int | None) -> int:
    """Shows what has been printed by now; how many bytes there were."""
    size = 0
    for piece in client.stream(job_path(printed.job, "/logs"), **printed.query(attempt=attempt)):
        printed.show(piece)
        size += len(piece)
    return size


def _follow_one(client: Client, printed: Printed, attempt: int) -> None:
    """One attempt, until it has ended."""
    for piece in client.stream(job_path(printed.job, "/logs"), **printed.query(attempt=attempt, follow=True)):
        printed.show(piece)


def _follow(client: Client, printed: Printed) -> None:
    """Attempt after attempt, until the job is over. A server that restarts is waited for."""
    attempt, offset = 1, 0
    patience = Patience(tells=printed.stream == "out")
    found: dict[str, Any] | None = client.get(job_path(printed.job))
    while found is not None and (found["attempts"] >= attempt or found["state"] not in FINAL):
        if found["attempts"] < attempt:
            patience.look_at(found)
            time.sleep(LOOK_S)
            found = look(client, printed.job)
            continue
        query = printed.query(attempt=attempt, offset=offset, follow=True)
        try:
            for piece in client.stream(job_path(printed.job, "/logs"), **query):
                offset += len(piece)
                printed.show(piece)
        except Unreachable as error:
            if patience.tells:
                click.echo(f"phalanx: {error}; waiting for it", err=True)
        else:
            attempt, offset = attempt + 1, 0
        found = look(client, printed.job)


def _together(client: Client, wanted: list[Printed], follow: Callable[[Client, Printed], None]) -> None:
    """Follows several at once: the first here, each other beside it over a connection of its own."""
    beside = [Thread(target=_quietly, args=(client, printed, follow), daemon=True) for printed in wanted[1:]]
    for thread in beside:
        thread.start()
    follow(client, wanted[0])
    for thread in beside:
        thread.join()


def _quietly(client: Client, printed: Printed, follow: Callable[[Client, Printed], None]) -> None:
    """What is wrong with the job or the server is told by the thread that follows the first."""
    own = Client(client.context)
    try:
        follow(own, printed)
    except PhalanxError:
        pass
    finally:
        own.close()
