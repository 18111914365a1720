"""`phalanx resize`: more or fewer replicas of a job."""

from __future__ import annotations

import click

from phalanx.cli.changes import change_jobs
from phalanx.cli.complete import job_argument
from phalanx.cli.output import Output, output_option


@click.command()
@job_argument
@click.argument("replicas", type=click.IntRange(0), metavar="N")
@click.option("--min", "minimum", type=click.IntRange(1), help="Minimum number of replicas. Default: unchanged.")
@click.option("--role", default="", help="Role to resize, if the job has several.")
@output_option
def resize(job: str, replicas: int, minimum: int | None, role: str, output: Output) -> int:
    """Set the number of replicas of the job ID to N.

    A pending job starts with N. A running job must be elastic: it shrinks to N, or grows up to N when no
    pending job needs the GPUs.
    """
    return change_jobs([job], "resize", output, {"replicas": replicas, "min": minimum, "role": role})
