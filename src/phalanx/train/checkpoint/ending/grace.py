"""How much time a process has after it was told to end, and when the job's longest run is over.

Both come from the environment and from files that the scheduler writes. torch is not needed here: the process that
writes checkpoints asks the same.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass

NOTICE_FILE = "PHALANX_NOTICE_FILE"
GRACE_MS = "PHALANX_GRACE_MS"
DEADLINE = "PHALANX_DEADLINE"

GRACE_S = 30.0
"""What most launchers grant between SIGTERM and SIGKILL."""

FILE_PATIENCE_S = 0.25
"""How long after a signal the notice file is waited for: it may be written a moment later."""

POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a process is to end, in the scheduler's word or empty, and until when on the wall clock."""

    reason: str
    until_s: float


def ending_after(signalled_s: float) -> Ending:
    """What was said about a signal that came at that moment: by the notice file, else by PHALANX_GRACE_MS, else 30 s.

    A launcher inside the task may send the signal by itself, as torchrun does when a rank has died; then no file comes.
    """
    noticed = read_notice()
    while noticed is None and os.environ.get(NOTICE_FILE) and time.time() < signalled_s + FILE_PATIENCE_S:
        time.sleep(POLL_S)
        noticed = read_notice()
    return noticed or Ending("", signalled_s + grace_s())


def read_notice() -> Ending | None:
    """What the notice file says; None where there is none, or it cannot be read."""
    path = os.environ.get(NOTICE_FILE)
    if not path:
        return None
    try:
        with open(path) as file:
            said = json.load(file)
        return Ending(str(said["reason"]), float(said["until_ms"]) / 1e3)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def grace_s() -> float:
    """The time between a notice and the end, where no notice says more."""
    try:
        return float(os.environ.get(GRACE_MS, "")) / 1e3
    except ValueError:
        return GRACE_S


def deadline_s() -> float | None:
    """When `max_run` stops the job, in seconds since 1970; None without one."""
    try:
        return float(os.environ.get(DEADLINE, ""))
    except ValueError:
        return None
