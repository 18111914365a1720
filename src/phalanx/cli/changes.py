"""What the verbs that change jobs have in common: one after another, and what became of each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from phalanx.cli.client import Client, connect, job_path
from phalanx.cli.exit import Exit
from phalanx.cli.job_rows import COLUMNS, job_row
from phalanx.cli.outcome import FINAL
from phalanx.cli.output import Output, emit
from phalanx.errors import PhalanxError

MEMBERS_MAX = 100_000
LOOK_S, LOOKS_MAX = 0.1, 10
"""A change is acknowledged when it is durable, a moment before it is acted upon."""


def change_jobs(jobs: Sequence[str], verb: str, output: Output, body: object = None) -> int:
    """Changes jobs and arrays, and shows them."""
    client = connect()
    changed, code = changed_by(client, jobs, verb, body)
    if verb == "hold":
        _tell_started(changed)
    emit([job_row(acted_upon(client, job) if verb == "cancel" else job) for job in changed], COLUMNS, output)
    return code


def changed_by(client: Client, jobs: Sequence[str], verb: str, body: object = None) -> tuple[list[dict[str, Any]], int]:
    """The jobs, and the members of arrays, that a verb has changed, and the code of the first that it could not change.

    Those that cannot be changed are named, and the rest is changed all the same.
    """
    changed: list[dict[str, Any]] = []
    code = int(Exit.OK)
    for job in jobs:
        try:
            changed += _all_of(client, client.post(job_path(job, f":{verb}"), body))
        except PhalanxError as error:
            if len(jobs) == 1 or error.exit_code == Exit.UNREACHABLE:
                raise
            click.echo(f"phalanx: {error}", err=True)
            code = code or error.exit_code
    return changed, code


def _tell_started(jobs: list[dict[str, Any]]) -> None:
    """A hold ends nothing."""
    for job in jobs:
        if job["state"] != "waiting":
            click.echo(
                f"job {job['id']} has started already: it goes on, and is held if it becomes pending again", err=True
            )


def _all_of(client: Client, job: dict[str, Any]) -> list[dict[str, Any]]:
    """A job that was changed, or all members of an array that were."""
    members = dict.fromkeys(job.pop("members", ()))
    if not members:
        return [job]
    found = client.items("/jobs", MEMBERS_MAX, array_of=job["array_of"], order="oldest")
    return [member for member in found if member["id"] in members]


def acted_upon(client: Client, job: dict[str, Any]) -> dict[str, Any]:
    """A job that was told to stop once it is seen that it does, or as it is after a moment."""
    was, attempts = job["state"], job["attempts"]
    for _ in range(LOOKS_MAX):
        if job["state"] != was or was in ("stopping", *FINAL) or job["attempts"] > attempts:
            break
        time.sleep(LOOK_S)
        job = client.get(job_path(job["id"]))
    return job
