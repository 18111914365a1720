"""`phalanx save`: have a running job save its work now."""

from __future__ import annotations

import time
from math import ceil
from typing import Any

import click

from phalanx.cli.client import Client, connect, job_path
from phalanx.cli.complete import job_argument
from phalanx.cli.exit import Exit
from phalanx.cli.outcome import look
from phalanx.cli.when import clock
from phalanx.document.units import duration_ms

LOOK_S = 0.2


@click.command()
@job_argument
@click.option("--timeout", default="5m", show_default=True, metavar="TIME", help="Maximum time to wait: 90s, 1h.")
@click.option("--no-wait", is_flag=True, help="Return once the job was asked, without waiting for the checkpoint.")
def save(job: str, timeout: str, no_wait: bool) -> int:
    """Ask the running job ID to save a checkpoint now, and wait until it is durable.

    The job must report its progress, as phalanx.train.checkpoint does.
    """
    client = connect()
    asked = client.post(job_path(job, ":save"), {"within_s": max(1, ceil(_ms_of(timeout) / 1000))})
    if no_wait:
        click.echo(f"job {job}: was asked to save its work by {clock(asked['until_ms'])}")
        return Exit.OK
    return _wait(client, job, asked)


def _wait(client: Client, job: str, asked: dict[str, Any]) -> int:
    began_s = time.monotonic()
    # As long as the server asks, by the clock here.
    longest_s = (asked["until_ms"] - asked["asked_ms"]) / 1000
    while time.monotonic() - began_s <= longest_s:
        found = look(client, job)
        if found is None or (found["attempt"] or {}).get("number") != asked["attempt"]:
            _tell(f"job {job}: its attempt {asked['attempt']} ended before it had saved its work")
            return Exit.ERROR
        # A request that came after this one is as good: it is about all that was done by then.
        step = (found["save"] or {}).get("durable_step")
        if step is not None:
            took_s = time.monotonic() - began_s
            click.echo(f"job {found['id']}: step {step} is durable, {took_s:.1f} s after it was asked to save")
            return Exit.OK
        time.sleep(LOOK_S)
    _tell(f"job {job}: nothing new was durable within {longest_s:g} s; `phalanx logs {job}` may tell why")
    return Exit.JOB_NOT_FINISHED


def _tell(what: str) -> None:
    click.echo(f"phalanx: {what}", err=True)


def _ms_of(text: str) -> int:
    length_ms = duration_ms(text)
    if length_ms is None:
        raise click.UsageError(f"--timeout {text}: expected a duration such as 90s, 1h30m or a number of seconds.")
    return length_ms
