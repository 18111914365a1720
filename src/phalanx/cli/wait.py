"""`phalanx wait`: until a job is over."""

from __future__ import annotations

import time

import click

from phalanx.cli.arrays import expanded
from phalanx.cli.client import connect
from phalanx.cli.complete import live_jobs
from phalanx.cli.exit import Exit
from phalanx.cli.outcome import wait_for
from phalanx.cli.output import STATE_WORDS
from phalanx.document.units import duration_ms


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="ID...", shell_complete=live_jobs)
@click.option(
    "--timeout",
    metavar="TIME",
    help="Maximum time to wait for all of them: 90s, 4h, or a number of seconds. Default: no limit.",
)
def wait(jobs: tuple[str, ...], timeout: str | None) -> int:
    """Wait until the jobs or arrays ID... have ended.

    The exit code shows how the first one that did not succeed ended.
    """
    deadline_s = None if timeout is None else time.monotonic() + _seconds(timeout)
    client = connect()
    worst = Exit.OK
    for job in [member for ref in jobs for member in expanded(client, ref)]:
        code, found = wait_for(client, job, deadline_s)
        state = STATE_WORDS.get(found["state"], found["state"]) if found else "gone"
        click.echo(f"job {found['id'] if found else job}: {state}", err=True)
        worst = worst or code
    return worst


def _seconds(text: str) -> float:
    length_ms = duration_ms(text)
    if length_ms is None:
        raise click.UsageError(f"--timeout {text}: expected a duration such as 90s, 1h30m or a number of seconds.")
    return length_ms / 1000
