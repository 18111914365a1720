"""Jobs whose attempt is asked to stop: what has become of them by now, and what comes next."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from phalanx.cli.changes import acted_upon, changed_by
from phalanx.cli.client import Client, connect
from phalanx.cli.job_rows import COLUMNS, job_row
from phalanx.cli.outcome import LOOK_FIRST_S, LOOK_MAX_S, look
from phalanx.cli.output import Column, Output, emit
from phalanx.cli.when import span

NEXT = Column("next", least=20)
HOLDING = ("starting", "running", "suspended", "stopping")
"""The states in which an attempt still has its GPUs."""


def stop_jobs(jobs: Sequence[str], verb: str, output: Output, until_stopped: bool) -> int:
    """Has the attempts of jobs stop, and shows each job with what comes next; at once, or when they have stopped."""
    client = connect()
    changed, code = changed_by(client, jobs, verb)
    if until_stopped:
        shown = [_stopped(client, job) for job in changed]
    else:
        shown = [acted_upon(client, job) if job["state"] in HOLDING else job for job in changed]
    rows = [
        {**job_row(now), "next": next_of(verb, now, before["attempts"])}
        for before, now in zip(changed, shown, strict=True)
    ]
    emit(rows, (*COLUMNS[:4], NEXT, *COLUMNS[4:]), output)
    return code


def _stopped(client: Client, job: dict[str, Any]) -> dict[str, Any]:
    """A job once its attempt has ended. A server that restarts is waited for."""
    pause_s, now = LOOK_FIRST_S, job
    while now["state"] in HOLDING and now["attempts"] == job["attempts"]:
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, LOOK_MAX_S)
        found = look(client, job["id"])
        if found is None:
            click.echo(f"phalanx: there is no job {job['id']} any more", err=True)
            break
        now = found
    return now


def next_of(verb: str, job: dict[str, Any], attempts: int) -> str:
    """What comes next for a job that was asked to stop when it had had so many attempts."""
    number = job["id"]
    if job["attempts"] > attempts:
        return f"it runs again, as attempt {job['attempts']}"
    if job["state"] in HOLDING:
        grace_ms = job.get("spec", {}).get("grace_ms")
        within = f", at most {span(grace_ms)} after SIGTERM" if grace_ms is not None else ""
        then = "suspended" if verb == "suspend" else "pending again"
        return f"{then} when its tasks have ended{within}"
    if job["state"] != "waiting":
        return "nothing: it is over"
    return f"it starts after `phalanx resume {number}`" if verb == "suspend" else "it starts again in its turn"
