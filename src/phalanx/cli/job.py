"""`phalanx job`: all about one job."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.client import connect, job_path
from phalanx.cli.complete import job_argument
from phalanx.cli.job_rows import job_row
from phalanx.cli.output import Column, Output, as_table, emit_one, output_option
from phalanx.cli.watch import shown, watch_option
from phalanx.cli.when import clock, span

COLUMNS = (
    Column("id"),
    Column("name"),
    Column("state"),
    Column("why"),
    Column("queue"),
    Column("user"),
    Column("kind"),
    Column("priority"),
    Column("gpus"),
    Column("where", "NODES"),
    Column("submitted"),
    Column("started"),
    Column("ended"),
    Column("ran"),
    Column("command"),
    Column("attempts"),
    Column("preemptions"),
    Column("exit_code"),
    Column("end_reason"),
)
ATTEMPT_COLUMNS = (
    Column("number", "ATTEMPT"),
    Column("phase"),
    Column("outcome"),
    Column("exit_code"),
    Column("nodes"),
    Column("started"),
    Column("ran"),
    Column("reason"),
)


@click.command()
@job_argument
@watch_option
@output_option
def job(job: str, watch: bool, output: Output) -> None:
    """Show the job ID: what it asks for, where it stands, and every attempt at it."""
    client = connect()

    def show() -> None:
        found = client.get(job_path(job))
        tries = client.get(job_path(found["id"], "/attempts"))["items"]
        emit_one({**_row(found), "tries": tries}, COLUMNS, output)
        if output in ("table", "wide") and tries:
            click.echo(f"\n{as_table([_attempt_row(each) for each in tries], ATTEMPT_COLUMNS)}", nl=False)

    shown(show, watch)


def _row(job: dict[str, Any]) -> dict[str, Any]:
    execution = (job.get("spec") or {}).get("execution") or {}
    return {
        **job_row(job),
        "submitted": clock(job["submitted_ms"]),
        "started": clock(job["started_ms"]),
        "ended": clock(job["ended_ms"]),
        "command": " ".join(execution.get("command") or ()) or None,
    }


def _attempt_row(attempt: dict[str, Any]) -> dict[str, Any]:
    started_ms, ended_ms = attempt.get("started_ms"), attempt.get("ended_ms")
    ran_ms = ended_ms - started_ms if started_ms is not None and ended_ms is not None else None
    return {**attempt, "started": clock(started_ms), "ran": span(ran_ms)}
