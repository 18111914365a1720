"""Staying with submitted jobs until they are over, and the exit code that comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import click

from phalanx.cli.client import Client
from phalanx.cli.exit import Exit


class Ended(NamedTuple):
    """A job that is over: the code of `submit --wait` for it, and the job, if it is still known."""

    code: Exit
    job: dict[str, Any] | None

    @property
    def own_code(self) -> int:
        """The code that the job itself ended with; RUN_ERROR for a job that has none: cancelled, or never started."""
        if self.code is Exit.JOB_FAILED and self.job is not None and self.job["exit_code"]:
            return int(self.job["exit_code"])
        return Exit.RUN_ERROR if self.code else Exit.OK


def attend(client: Client, made: list[dict[str, Any]], follow: bool) -> Iterator[Ended]:
    """Waits for the end of each job and says how it came out, after what its first task prints where that is wanted."""
    from phalanx.cli.outcome import wait_for

    for member in _members(made):
        with _left_running(made):
            if follow:
                _follow(client, member)
            ended = Ended(*wait_for(client, member))
        _report(member, ended.job)
        yield ended


def follow_all(client: Client, made: list[dict[str, Any]]) -> None:
    """Prints what the first task of each job prints until the job is over."""
    for member in _members(made):
        with _left_running(made):
            _follow(client, member)


@contextmanager
def _left_running(made: list[dict[str, Any]]) -> Iterator[None]:
    """Says on Ctrl-C that it ends the waiting alone, and how to end the jobs."""
    try:
        yield
    except KeyboardInterrupt:
        ids = " ".join(str(job["id"]) for job in made)
        click.echo(f"\nCtrl-C leaves the job as it is: `phalanx cancel {ids}` cancels it", err=True)
        raise


def _members(made: list[dict[str, Any]]) -> list[str]:
    return [member for job in made for member in job.get("members") or [job["id"]]]


def _follow(client: Client, job: str) -> None:
    from phalanx.cli.logs import follow_logs

    follow_logs(client, job)


def _report(job: str, found: dict[str, Any] | None) -> None:
    state = found["state"] if found else "gone"
    reason = found.get("end_reason", "") if found and state != "succeeded" else ""
    why = f": {reason}" if reason not in ("", state) else ""
    click.echo(f"job {job} {state}{why}", err=True)
