"""`phalanx cancel`: have jobs leave, or never start."""

from __future__ import annotations

import click

from phalanx.cli.changes import change_jobs
from phalanx.cli.complete import live_jobs
from phalanx.cli.output import Output, output_option


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="ID...", shell_complete=live_jobs)
@output_option
def cancel(jobs: tuple[str, ...], output: Output) -> int:
    """Cancel the jobs ID.... Running tasks get SIGTERM and are killed when their grace period ends."""
    return change_jobs(jobs, "cancel", output)
