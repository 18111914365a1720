"""`phalanx release`: let held jobs start."""

from __future__ import annotations

import click

from phalanx.cli.changes import change_jobs
from phalanx.cli.complete import live_jobs
from phalanx.cli.output import Output, output_option


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="ID...", shell_complete=live_jobs)
@output_option
def release(jobs: tuple[str, ...], output: Output) -> int:
    """Release the held jobs ID..., so that they can start."""
    return change_jobs(jobs, "release", output)
