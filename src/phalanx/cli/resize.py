"""`phalanx resize`: more or fewer replicas of a job."""

from __future__ import annotations

import click

from phalanx.cli.changes import change_jobs
from phalanx.cli.complete import job_argument
from phalanx.cli.output import Output, output_option


@click.command()
@job_argument
@click.argument("replicas", type=click.IntRange(0), metavar="N")
@click.option("--min", "minimum", type=click.IntRange(1), help="The fewest it can run with. Default: unchanged.")
@click.option("--role", default="", help="Which role, of a gang of several.")
@output_option
def resize(job: str, replicas: int, minimum: int | None, role: str, output: Output) -> int:
    """Give the job ID N replicas: at once if it waits; if it is elastic and runs, it shrinks to N or grows up to N."""
    return change_jobs([job], "resize", output, {"replicas": replicas, "min": minimum, "role": role})
