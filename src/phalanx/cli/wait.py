"""`phalanx wait`: until a job is over."""

from __future__ import annotations

import click

from phalanx.cli.arrays import expanded
from phalanx.cli.client import connect
from phalanx.cli.complete import live_jobs
from phalanx.cli.exit import Exit
from phalanx.cli.outcome import wait_for


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="ID...", shell_complete=live_jobs)
@click.option("--timeout", "timeout_s", type=click.FloatRange(0), metavar="SECONDS", help="Give up after so long.")
def wait(jobs: tuple[str, ...], timeout_s: float | None) -> int:
    """Wait until the jobs or arrays ID... are over; the exit code says how the first that did not succeed came out."""
    client = connect()
    worst = Exit.OK
    for job in [member for ref in jobs for member in expanded(client, ref)]:
        code, found = wait_for(client, job, timeout_s)
        state = found["state"] if found else "gone"
        click.echo(f"job {found['id'] if found else job}: {state}", err=True)
        worst = worst or code
    return worst
