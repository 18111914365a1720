"""How a job came out, as an exit code that scripts can read."""

from __future__ import annotations

import time
from typing import Any

from phalanx.cli.client import Client, NotFound, Unreachable, job_path
from phalanx.cli.exit import Exit

FINAL = {"succeeded": Exit.OK, "failed": Exit.JOB_FAILED, "cancelled": Exit.JOB_CANCELLED}
LOOK_FIRST_S, LOOK_MAX_S = 0.05, 1.0
OUTAGE_MAX_S = 60.0


def wait_for(client: Client, job: str, timeout_s: float | None = None) -> tuple[Exit, dict[str, Any] | None]:
    """Waits until a job is over; the code for it, and the job if there is one. A server that restarts is waited for."""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    pause_s, seen_s, found = LOOK_FIRST_S, time.monotonic(), None
    while True:
        try:
            found = client.get(job_path(job))
            seen_s = time.monotonic()
            if found["state"] in FINAL:
                return FINAL[found["state"]], found
        except NotFound:
            return Exit.JOB_GONE, None
        except Unreachable:
            if time.monotonic() - seen_s > OUTAGE_MAX_S:
                raise
        if deadline_s is not None and time.monotonic() + pause_s > deadline_s:
            return Exit.JOB_NOT_FINISHED, found
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, LOOK_MAX_S)
