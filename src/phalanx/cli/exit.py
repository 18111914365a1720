"""What a script may read from the exit code of `phalanx`."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The codes are a public surface: add to them, never renumber them."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    REFUSED = 4
    UNREACHABLE = 5
    JOB_FAILED = 100
    JOB_NOT_FINISHED = 101
    JOB_GONE = 102
    JOB_CANCELLED = 103
    # As of `docker run` and `env`: below what a shell says of a program that it cannot run.
    RUN_ERROR = 125
    # The shell's convention for a program that a signal ended: 128 + SIGINT.
    INTERRUPTED = 130


MEANING: dict[Exit, str] = {
    Exit.OK: "ok; of `wait` and `submit --wait`: the job succeeded",
    Exit.ERROR: "error",
    Exit.USAGE: "usage: an option or argument is wrong",
    Exit.NOT_FOUND: "not found",
    Exit.REFUSED: "refused",
    Exit.UNREACHABLE: "server unreachable",
    Exit.JOB_FAILED: "`wait`, `submit --wait`: the job failed",
    Exit.JOB_NOT_FINISHED: "`wait`, `submit --wait`: not finished; `save`: not durable in time",
    Exit.JOB_GONE: "`wait`, `submit --wait`: the job is gone",
    Exit.JOB_CANCELLED: "`wait`, `submit --wait`: the job was cancelled",
    Exit.RUN_ERROR: "`run`: an error of its own, or a job without a code; else `run` ends with the code of the job",
    Exit.INTERRUPTED: "interrupted from the keyboard",
}
