"""`phalanx jobs`: which jobs are pending, running and finished."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.client import connect
from phalanx.cli.complete import queue_names
from phalanx.cli.job_rows import LIVE, columns_of, job_row
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.state_file import at_option
from phalanx.cli.watch import shown, watch_option
from phalanx.cli.when import clock

NO_FILTERS = ("", "", "", "", None, "", "")
NO_JOBS = "No active jobs. Use --all to include finished ones."
NO_SUCH_JOBS = "No active jobs match. Use --all to include finished ones."

FOUND_COLUMNS = (
    Column("job"),
    Column("attempt"),
    Column("queue", least=8, tail=True, spare=True),
    Column("user", least=6, spare=True),
    Column("found"),
    Column("outcome"),
    Column("path", "LOGS", least=12, tail=True),
    Column("id", wide=True),
    Column("incarnation", wide=True),
    Column("reason", wide=True),
)


@click.command()
@click.option("--all", "with_ended", is_flag=True, help="Include finished jobs.")
@click.option(
    "--state",
    default="",
    metavar="STATE[,…]",
    help="Only jobs in these states: pending, running, … Default: all that are not finished.",
)
@click.option(
    "--queue", default="", shell_complete=queue_names, help="Only jobs of this queue and the queues below it."
)
@click.option("--user", default="", help="Only jobs of this user.")
@click.option("--name", default="", help="Only jobs with this name.")
@click.option("--kind", type=click.Choice(["training", "service", "interactive"]), help="Only jobs of this kind.")
@click.option("--label", default="", metavar="KEY=VALUE", help="Only jobs with this label.")
@click.option("--array", "array_of", default="", metavar="ID", help="Only members of this array.")
@click.option(
    "--found", is_flag=True, help="List instead the attempts, with their logs, that are missing from a restored backup."
)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Maximum number of jobs.")
@click.option(
    "--saved",
    "state_path",
    metavar="FILE",
    help="Read a journal, a snapshot, a debug bundle or a run of `simulate --save`. Default: the live server.",
)
@at_option
@watch_option
@output_option
def jobs(
    with_ended: bool,
    state: str,
    queue: str,
    user: str,
    name: str,
    kind: str | None,
    label: str,
    array_of: str,
    found: bool,
    limit: int,
    state_path: str | None,
    at: str | None,
    watch: bool,
    output: Output,
) -> None:
    """List jobs, newest first. Finished jobs are listed only with --all or --state.

    AGE is the time since submission. RAN is the run time of all attempts together. PREEMPTIONS is shown if a listed job
    was preempted; `phalanx why ID` names the job that it was last preempted for.
    """
    states = state or ("" if with_ended else LIVE)
    if at is not None or state_path is not None:
        from phalanx.cli.jobs_saved import Filters, jobs_saved

        rows = jobs_saved(state_path, at, Filters(states, queue, user, name, kind or "", label, array_of), limit)
        emit(rows, columns_of(rows), output)
        return
    client = connect()

    def show() -> None:
        if found:
            emit([_found_row(each) for each in client.get("/found")["items"][:limit]], FOUND_COLUMNS, output)
            return
        listed = client.items(
            "/jobs", limit, state=states, queue=queue, user=user, name=name, kind=kind, label=label, array_of=array_of
        )
        rows = [job_row(job) for job in listed]
        emit(rows, columns_of(rows), output)
        if not rows and states == LIVE and output in ("table", "wide") and not watch:
            click.echo(
                NO_JOBS if (state, queue, user, name, kind, label, array_of) == NO_FILTERS else NO_SUCH_JOBS, err=True
            )

    shown(show, watch)


def _found_row(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "found": clock(found["found_ms"])}
