"""What is done to all processes of an attempt at once: they are all descendants of its shepherd, wherever they went."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection

from phalanx.backends.local.host.processes import descendants, signal_process

FREEZE_LOOKS_MAX = 50
CLEAR_UP_MAX_S = 60.0


def freeze(spared: Collection[int] = ()) -> None:
    """Stops every process but those of some sessions; one that was just being born is found at the next look."""
    for _ in range(FREEZE_LOOKS_MAX):
        # One that was forked just now is not the first of its session yet.
        attempt_process = (
            each for each in descendants(os.getpid()) if each.session not in spared and each.pid not in spared
        )
        awake = [each for each in attempt_process if each.state not in ("T", "t")]
        if not awake:
            return
        for each in awake:
            signal_process(each.pid, signal.SIGSTOP)
        time.sleep(0.002)


def thaw() -> None:
    """Lets every process go on."""
    for each in descendants(os.getpid()):
        signal_process(each.pid, signal.SIGCONT)


def kill_all() -> None:
    """Kills every process. One that is just being born may escape; it is found at the next look."""
    for each in descendants(os.getpid()):
        signal_process(each.pid, signal.SIGKILL)


def any_left() -> bool:
    """Whether there is any process at all. Orphans become our children, so without a child there is no descendant."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def run_quietly(argv: list[str]) -> None:
    """Runs a command to clear up with, and minds neither its words nor its outcome."""
    if not argv:
        return
    import subprocess

    quiet = subprocess.DEVNULL
    try:
        subprocess.run(argv, stdin=quiet, stdout=quiet, stderr=quiet, timeout=CLEAR_UP_MAX_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return
