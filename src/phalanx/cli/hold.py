"""`phalanx hold`: keep pending jobs from starting."""

from __future__ import annotations

import click

from phalanx.cli.changes import change_jobs
from phalanx.cli.complete import live_jobs
from phalanx.cli.output import Output, output_option


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="ID...", shell_complete=live_jobs)
@output_option
def hold(jobs: tuple[str, ...], output: Output) -> int:
    """Hold the pending jobs ID...: they do not start until they are released."""
    return change_jobs(jobs, "hold", output)
