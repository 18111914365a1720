"""`phalanx update`: another priority, queue or time for pending jobs."""

from __future__ import annotations

import click

from phalanx.cli.changes import change_jobs
from phalanx.cli.complete import live_jobs, queue_names
from phalanx.cli.output import Output, output_option


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="ID...", shell_complete=live_jobs)
@click.option("--priority", type=int, help="Priority; higher goes first, if the policy uses priorities.")
@click.option("--queue", shell_complete=queue_names, help="Move the jobs to this queue.")
@click.option("--duration", metavar="TIME", help="Estimated run time: 90s, 4h; none: unknown.")
@click.option(
    "--max-run", metavar="TIME", help="Maximum run time, after which jobs are stopped: 90s, 4h; none: no maximum."
)
@click.option("--begin", metavar="TIME", help="Earliest start: +2h, 2030-01-31T08:00Z; none: at once.")
@click.option(
    "--deadline", metavar="TIME", help="Time by which the jobs should end: +2h, 2030-01-31T08:00Z; none: no deadline."
)
@output_option
def update(
    jobs: tuple[str, ...],
    priority: int | None,
    queue: str | None,
    duration: str | None,
    max_run: str | None,
    begin: str | None,
    deadline: str | None,
    output: Output,
) -> int:
    """Change pending jobs, or the pending members of arrays. They keep their submission time."""
    said = {"priority": priority, "queue": queue}
    said |= {"duration": duration, "max_run": max_run, "begin": begin, "deadline": deadline}
    body = {key: value for key, value in said.items() if value is not None}
    if not body:
        raise click.UsageError(
            "expected at least one of --priority, --queue, --duration, --max-run, --begin, --deadline"
        )
    return change_jobs(jobs, "update", output, body)
