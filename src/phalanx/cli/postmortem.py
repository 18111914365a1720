"""`phalanx postmortem`: what became of a job's time, and what would have saved it."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.client import connect, job_path
from phalanx.cli.complete import job_argument
from phalanx.cli.output import Column, Output, as_json, as_table, as_yaml, output_option
from phalanx.cli.when import clock, span

HOUR_MS = 3_600_000
SPENT = (Column("kind", "WENT TO"), Column("time"), Column("part"), Column("gpu_hours", "GPU-HOURS"))
ENDED = (Column("attempt"), Column("at", "ENDED"), Column("kind", "BY"), Column("lost"), Column("text", "WHAT"))
HELPS = (Column("kind", "WITH"), Column("saves"), Column("text", "WHAT"))


@click.command()
@job_argument
@output_option
def postmortem(job: str, output: Output) -> None:
    """Explain where the time of the job ID went: first cause, what each second went to, what would have saved it."""
    told = connect().get(job_path(job, "/postmortem"))
    if output == "json":
        click.echo(as_json(told))
    elif output == "yaml":
        click.echo(as_yaml(told), nl=False)
    else:
        click.echo("\n\n".join(part for part in _parts(told) if part))


def _parts(told: dict[str, Any]) -> list[str]:
    job = told["job"]
    whole_ms = sum(each["ms"] for each in told["spent"]) or 1
    spent = [
        {**each, "time": span(each["ms"]), "part": f"{each['ms'] / whole_ms:.0%}", "gpu_hours": _hours(each["gpu_ms"])}
        for each in told["spent"]
    ]
    ended = [{**each, "at": clock(each["at_ms"]), "lost": _lost(each["lost_ms"])} for each in told["endings"]]
    helps = [{**each, "saves": span(each["saves_ms"])} for each in told["remedies"]]
    about = (
        f"job {job['id']} {job['name']}: {job['state']}, {job['gpus']} GPUs, queue {job['queue']}, user {job['user']}"
    )
    return [
        f"{about}\nfirst cause: {told['first_cause']}",
        as_table(spent, SPENT),
        as_table(ended, ENDED) if ended else "",
        as_table(helps, HELPS) if helps else "Nothing is known that would have saved more than a minute.",
    ]


def _hours(gpu_ms: int) -> float:
    return round(gpu_ms / HOUR_MS, 2)


def _lost(lost_ms: int | None) -> str:
    return span(lost_ms) or "not known"
