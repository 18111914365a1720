"""`phalanx history`: jobs that are over, with what they took and how they ended."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.client import connect
from phalanx.cli.complete import queue_names
from phalanx.cli.job_rows import job_row
from phalanx.cli.output import STATE, Column, Output, emit, output_option
from phalanx.cli.when import clock, past

FINAL = "succeeded,failed,cancelled"
HOUR_MS = 3_600_000
LOOKED_AT_MAX = 100_000

COLUMNS = (
    Column("id"),
    Column("name", least=8),
    STATE,
    Column("exit_code", "EXIT"),
    Column("user", least=6, spare=True),
    Column("queue", least=8, tail=True, spare=True),
    Column("gpus"),
    Column("gpu_hours", "GPU-HOURS"),
    Column("ran"),
    Column("ended", spare=True),
    Column("where", "NODES", least=6, spare=True),
    Column("submitted", wide=True),
    Column("started", wide=True),
    Column("told_start", "TOLD START", wide=True),
    Column("attempts", wide=True),
    Column("preemptions", wide=True),
    Column("end_reason", wide=True),
)


@click.command()
@click.option(
    "--since",
    default="1d",
    show_default=True,
    metavar="TIME",
    help="Only jobs that ended since then: 24h, 30d, 2026-01-31T08:00Z.",
)
@click.option("--user", default="", help="Only jobs of this user.")
@click.option(
    "--queue", default="", shell_complete=queue_names, help="Only jobs of this queue and the queues below it."
)
@click.option("--name", default="", help="Only jobs with this name.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Maximum number of jobs.")
@output_option
def history(since: str, user: str, queue: str, name: str, limit: int, output: Output) -> None:
    """List finished jobs, last submitted first. GPU-HOURS is the time that they ran times the GPUs they had."""
    since_ms = past(since, "--since")
    listed = connect().items("/jobs", LOOKED_AT_MAX, state=FINAL, user=user, queue=queue, name=name)
    rows = []
    for job in listed:
        if (job["ended_ms"] or 0) >= since_ms:
            rows.append(_row(job))
        if len(rows) == limit:
            break
    emit(rows, COLUMNS, output)
    if not rows and output in ("table", "wide"):
        click.echo(f"No job has ended since {clock(since_ms)}. Use --since to look further back.", err=True)


def _row(job: dict[str, Any]) -> dict[str, Any]:
    return {
        **job_row(job),
        "gpu_hours": round(job["executed_before_gpu_ms"] / HOUR_MS, 2),
        "submitted": clock(job["submitted_ms"]),
        "ended": clock(job["ended_ms"]),
    }
