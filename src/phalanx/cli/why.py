"""`phalanx why`: why a job is pending, on the live server or in a saved state."""

from __future__ import annotations

import click

from phalanx.cli.complete import job_argument
from phalanx.cli.output import Output, output_option
from phalanx.cli.state_file import at_option, state_option
from phalanx.cli.why_live import why_live


@click.command()
@job_argument
@state_option
@at_option
@click.option(
    "--forecast/--no-forecast",
    "ahead",
    default=None,
    help="Forecast the start by simulating ahead several times. Default: only if that is quick.",
)
@output_option
def why(job: str, state_path: str | None, at: str | None, ahead: bool | None, output: Output) -> None:
    """Explain why the job ID is pending: the dominant reason, what would start it now, and the evidence for both."""
    if state_path is None and at is None:
        why_live(job, output)
        return
    from phalanx.cli.why_saved import why_saved

    why_saved(job, state_path, at, ahead, output)
