"""`phalanx usage`: GPU-hours by user, queue or job, and what of them was lost or idle."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.client import connect
from phalanx.cli.complete import queue_names
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.when import now_ms, past

HOUR_MS = 3_600_000
HOURS_LEAST = 0.0001
FIGURES = (
    Column("jobs"),
    Column("gpu_hours", "GPU-HOURS"),
    Column("lost_gpu_hours", "LOST"),
    Column("idle_gpu_hours", "IDLE"),
    Column("busy", "BUSY"),
    Column("attempts", wide=True),
)
OF_JOBS = (
    Column("name", least=8),
    Column("user", least=6, spare=True),
    Column("queue", least=8, tail=True, spare=True),
)


@click.command()
@click.option(
    "--by",
    type=click.Choice(["user", "queue", "job"]),
    default="user",
    show_default=True,
    help="Group by user, queue or job.",
)
@click.option(
    "--since", default="7d", show_default=True, metavar="TIME", help="Start of the period: 24h, 30d, 2026-01-31T08:00Z."
)
@click.option("--until", metavar="TIME", help="End of the period: 24h, 30d, 2026-01-31T08:00Z. Default: now.")
@click.option("--user", default="", help="Only jobs of this user.")
@click.option(
    "--queue", default="", shell_complete=queue_names, help="Only jobs of this queue and the queues below it."
)
@output_option
def usage(by: str, since: str, until: str | None, user: str, queue: str, output: Output) -> None:
    """Sum up the allocated GPU-hours by user, queue or job, largest first.

    LOST is work that was stopped before it was saved. BUSY is the GPU utilisation that jobs report (gpu_busy). IDLE is
    the GPU-hours that were not busy. Both are a dash if no job reports utilisation.
    """
    since_ms, until_ms = past(since, "--since"), past(until, "--until") if until else now_ms()
    if since_ms >= until_ms:
        raise click.UsageError(f"--since {since}: expected a time before {until or 'now'}")
    found = connect().get("/usage", by=by, since_ms=since_ms, until_ms=until_ms, user=user, queue=queue)["items"]
    columns = [Column("key", by.upper(), least=6), *(OF_JOBS if by == "job" else ()), *FIGURES]
    emit([row_of(each) for each in found], columns, output)
    if not found and output in ("table", "wide"):
        click.echo("No job held a GPU in that time.", err=True)


def row_of(used: dict[str, Any]) -> dict[str, Any]:
    """What is shown of one user, queue or job."""
    reported, busy = used["reported_gpu_ms"], used["busy_gpu_ms"]
    return {
        **used,
        "gpu_hours": _hours(used["gpu_ms"]),
        "lost_gpu_hours": _hours(used["lost_gpu_ms"]),
        "idle_gpu_hours": _hours(reported - busy) if reported else None,
        "busy": f"{busy / reported:.0%}" if reported else None,
    }


def _hours(gpu_ms: int) -> float:
    """Hours to the hundredth; less than one to two digits, and not below a ten-thousandth: a short job is not 0."""
    hours = gpu_ms / HOUR_MS
    if hours >= 1 or not hours:
        return round(hours, 2)
    return max(float(f"{hours:.2g}"), HOURS_LEAST)
