"""`phalanx requeue`, `suspend` and `resume`: jobs that give up their GPUs and start again, at once or later."""

from __future__ import annotations

import click

from phalanx.cli.changes import change_jobs
from phalanx.cli.complete import live_jobs
from phalanx.cli.output import Output, output_option
from phalanx.cli.stopping import stop_jobs

wait_option = click.option("--wait", is_flag=True, help="Wait until their tasks have ended and their GPUs are free.")


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="ID...", shell_complete=live_jobs)
@wait_option
@output_option
def requeue(jobs: tuple[str, ...], wait: bool, output: Output) -> int:
    """Stop the running jobs ID..., with their grace period, and queue them again.

    They keep their submission time, and continue from their newest checkpoint if they save any.
    """
    return stop_jobs(jobs, "requeue", output, until_stopped=wait)


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="ID...", shell_complete=live_jobs)
@wait_option
@output_option
def suspend(jobs: tuple[str, ...], wait: bool, output: Output) -> int:
    """Suspend the jobs ID...: they free their GPUs and do not start until they are resumed.

    They are stopped with their grace period, and continue from their newest checkpoint if they save any.
    """
    return stop_jobs(jobs, "suspend", output, until_stopped=wait)


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="ID...", shell_complete=live_jobs)
@output_option
def resume(jobs: tuple[str, ...], output: Output) -> int:
    """Resume the suspended jobs ID..., so that they can start again."""
    return change_jobs(jobs, "resume", output)
