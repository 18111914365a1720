"""`phalanx when`: when a job starts, or ends."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.client import connect, job_path
from phalanx.cli.complete import job_argument
from phalanx.cli.output import STATE, Column, Output, emit_one, output_option
from phalanx.cli.when import ago, clock, now_ms, span
from phalanx.cli.why_live import expected_start

COLUMNS = (Column("job"), STATE, Column("starts"), Column("started"), Column("ends"), Column("ended"))
FINAL = ("succeeded", "failed", "cancelled")


@click.command()
@job_argument
@output_option
def when(job: str, output: Output) -> None:
    """Show when the pending job ID is expected to start, or when the running job ID is expected to end.

    For a finished job, show when it ended. `phalanx why ID` explains what the start depends on.
    """
    client = connect()
    found = client.get(job_path(job))
    row = {"job": found["id"], "state": found["state"], **times_of(found)}
    if found["state"] == "waiting":
        told = client.get(job_path(found["id"], "/why"))
        row["starts"] = expected_start(told, now_ms()) or f"unknown: {told['why']}"
        row["forecast"] = told.get("forecast")
    emit_one(row, [column for column in COLUMNS if row.get(column.key)], output)


def times_of(job: dict[str, Any]) -> dict[str, Any]:
    """What is known of a job without a forecast."""
    times: dict[str, Any] = {key: job[key] for key in ("started_ms", "expected_end_ms", "ended_ms")}
    if job["started_ms"] is not None:
        times["started"] = f"{clock(job['started_ms'])}, {ago(job['started_ms'])} ago"
    if job["ended_ms"] is not None:
        times["ended"] = f"{clock(job['ended_ms'])}, {ago(job['ended_ms'])} ago"
    elif job["state"] not in (*FINAL, "waiting"):
        starts = job["state"] == "starting"
        times["ends"] = "unknown: it does not run yet" if starts else expected_end(job["expected_end_ms"], now_ms())
    return times


def expected_end(expected_ms: int | None, at_ms: int) -> str:
    """When a running job ends; one that runs longer than it said may at any moment."""
    if expected_ms is None:
        return "unknown: the job says neither duration nor max_run"
    left_ms = expected_ms - at_ms
    if left_ms <= 0:
        return f"any moment: it has run {span(-left_ms)} longer than it said"
    return f"{clock(expected_ms)}, in {span(left_ms)}, by its own estimate"
