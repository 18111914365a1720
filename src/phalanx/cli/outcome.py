"""How a job came out, as an exit code that scripts can read."""

from __future__ import annotations

import time
from typing import Any

import click

from phalanx.cli.client import Client, NotFound, Unreachable, job_path
from phalanx.cli.exit import Exit

FINAL = {"succeeded": Exit.OK, "failed": Exit.JOB_FAILED, "cancelled": Exit.JOB_CANCELLED}
LOOK_FIRST_S, LOOK_MAX_S = 0.05, 1.0
OUTAGE_MAX_S = 60.0
SENTENCES = {
    "waiting": "is pending",
    "succeeded": "has succeeded",
    "failed": "has failed",
    "cancelled": "was cancelled",
}
PATIENT_S = 1.5
"""So long a job may be pending before the user is told why."""


class Patience:
    """Tells a user that waits for a job, once, why it has not started: some never will."""

    def __init__(self, tells: bool = True) -> None:
        self.tells = tells
        self._since_s = time.monotonic()
        self._told = ""

    def look_at(self, job: dict[str, Any]) -> None:
        """Says why the job waits, if it has for a while and there is something new to say."""
        reason = job.get("reason") or ""
        if not self.tells or job["state"] != "waiting" or reason in ("", "undecided", self._told):
            return
        if time.monotonic() - self._since_s >= PATIENT_S:
            self._told = reason
            click.echo(f"job {job['id']} is pending: {reason}; `phalanx why {job['id']}` tells more", err=True)


def sentence_of(state: str) -> str:
    """What a sentence says of a job in a state."""
    return SENTENCES.get(state, f"is {state}")


def wait_for(client: Client, job: str, deadline_s: float | None = None) -> tuple[Exit, dict[str, Any] | None]:
    """Waits until a job is over, or to a moment of the monotonic clock; the code for it, and the job if there is one.

    A server that restarts is waited for.
    """
    pause_s, patience = LOOK_FIRST_S, Patience()
    found = look(client, job, patience_s=0)
    while found is not None and found["state"] not in FINAL:
        if deadline_s is not None and time.monotonic() + pause_s > deadline_s:
            return Exit.JOB_NOT_FINISHED, found
        patience.look_at(found)
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, LOOK_MAX_S)
        found = look(client, job)
    return (Exit.JOB_GONE, None) if found is None else (FINAL[found["state"]], found)


def look(client: Client, job: str, patience_s: float = OUTAGE_MAX_S) -> dict[str, Any] | None:
    """A job as it is now; None if there is none. A server that is away is given time to come back."""
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            found: dict[str, Any] = client.get(job_path(job))
            return found
        except NotFound:
            return None
        except Unreachable:
            if time.monotonic() >= deadline_s:
                raise
            time.sleep(LOOK_MAX_S)
