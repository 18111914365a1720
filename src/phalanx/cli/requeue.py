"""`phalanx requeue`, `suspend` and `resume`: jobs that give up their GPUs and start again, at once or later."""

from __future__ import annotations

import click

from phalanx.cli.changes import change_jobs
from phalanx.cli.complete import live_jobs
from phalanx.cli.output import Output, output_option


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="ID...", shell_complete=live_jobs)
@output_option
def requeue(jobs: tuple[str, ...], output: Output) -> int:
    """Stop the running jobs ID... with notice and their grace, and have them wait for their next start.

    They keep their place among the submissions, and go on from their newest checkpoint, if they save any.
    """
    return change_jobs(jobs, "requeue", output)


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="ID...", shell_complete=live_jobs)
@output_option
def suspend(jobs: tuple[str, ...], output: Output) -> int:
    """Have the jobs ID... give up their GPUs, and not start again until they are resumed.

    They are stopped with notice and their grace, and go on from their newest checkpoint, if they save any.
    """
    return change_jobs(jobs, "suspend", output)


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="ID...", shell_complete=live_jobs)
@output_option
def resume(jobs: tuple[str, ...], output: Output) -> int:
    """Let the suspended jobs ID... start again."""
    return change_jobs(jobs, "resume", output)
