"""`phalanx resize`: more or fewer replicas of an elastic job."""

from __future__ import annotations

import click

from phalanx.cli.changes import change_jobs
from phalanx.cli.complete import job_argument
from phalanx.cli.output import Output, output_option


@click.command()
@job_argument
@click.argument("replicas", type=click.IntRange(1), metavar="N")
@output_option
def resize(job: str, replicas: int, output: Output) -> int:
    """Give the elastic job ID N replicas."""
    return change_jobs([job], "resize", output, {"replicas": replicas})
