"""`phalanx job`: all about one job."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.arrays import expanded, members_of
from phalanx.cli.client import connect, job_path
from phalanx.cli.complete import job_argument
from phalanx.cli.job_rows import COLUMNS as LIST_COLUMNS
from phalanx.cli.job_rows import job_row
from phalanx.cli.output import STATE, Column, Output, as_table, emit, emit_one, output_option
from phalanx.cli.watch import shown, watch_option
from phalanx.cli.when import ago, clock, now_ms, span

COLUMNS = (
    Column("id"),
    Column("name"),
    STATE,
    Column("why"),
    Column("queue"),
    Column("user"),
    Column("kind"),
    Column("priority"),
    Column("gpus"),
    Column("where", "NODES"),
    Column("submitted"),
    Column("told_start", "TOLD START"),
    Column("started"),
    Column("ended"),
    Column("ran"),
    Column("progress"),
    Column("scale"),
    Column("command"),
    Column("attempts"),
    Column("preemptions"),
    Column("lost"),
    Column("found"),
    Column("exit_code"),
    Column("end_reason"),
)
ATTEMPT_COLUMNS = (
    Column("number", "ATTEMPT"),
    Column("phase"),
    Column("outcome"),
    Column("exit_code"),
    Column("nodes", least=6),
    Column("started", spare=True),
    Column("ran"),
    Column("reason"),
    Column("step", spare=True),
    Column("durable_step", "SAVED", spare=True),
    Column("lost", spare=True),
)


@click.command()
@job_argument
@watch_option
@output_option
def job(job: str, watch: bool, output: Output) -> None:
    """Show the job ID: its request, its state and its attempts; of an array, its members."""
    client = connect()

    def show() -> None:
        if expanded(client, job) != [job]:
            emit([job_row(member) for member in members_of(client, job)], LIST_COLUMNS, output)
            return
        found = client.get(job_path(job))
        tries = client.get(job_path(found["id"], "/attempts"))["items"]
        row = (
            _row(found)
            if output in ("table", "wide")
            else {**_row(found), "progress": found["progress"], "scale": found["scale"]}
        )
        emit_one({**row, "tries": tries}, COLUMNS, output)
        if output in ("table", "wide") and tries:
            click.echo(f"\n{as_table([_attempt_row(each) for each in tries], ATTEMPT_COLUMNS)}", nl=False)

    shown(show, watch)


def _row(job: dict[str, Any]) -> dict[str, Any]:
    execution = (job.get("spec") or {}).get("execution") or {}
    return {
        **job_row(job),
        "submitted": clock(job["submitted_ms"]),
        "ended": clock(job["ended_ms"]),
        "progress": _progress(job.get("progress")),
        "scale": (job.get("scale") or {}).get("says"),
        "lost": job.get("lost") or None,
        "found": job.get("found") or None,
        "command": " ".join(execution.get("command") or ()) or None,
    }


def _progress(said: dict[str, Any] | None) -> str | None:
    """What a job said of itself last, in words; only what it did say."""
    if said is None:
        return None
    parts = [
        f"step {said['step']:,}",
        f"{said['durable_step']:,} saved" if said["durable_step"] else "",
        f"{said['samples_per_s']:.4g} samples/s" if said["samples_per_s"] else "",
        f"GPUs {said['gpu_busy']:.0%} busy" if said["gpu_busy"] else "",
        *(f"{name} {value:.4g}" for name, value in said["metrics"].items()),
    ]
    return f"{', '.join(filter(None, parts))}, {ago(said['at_ms'])} ago"


def _attempt_row(attempt: dict[str, Any]) -> dict[str, Any]:
    started_ms, ended_ms = attempt.get("started_ms"), attempt.get("ended_ms")
    ran_ms = (ended_ms or now_ms()) - started_ms if started_ms is not None else None
    return {**attempt, "started": clock(started_ms), "ran": span(ran_ms), "lost": span(attempt.get("lost_ms"))}
