"""Slurm's own commands: run with lists of arguments, never by a shell, and with little of our environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from phalanx.errors import PhalanxError

PASSED_ON = (
    *("PATH", "HOME", "USER", "LOGNAME", "LD_LIBRARY_PATH", "SLURM_CONF"),
    *("SBATCH_PARTITION", "SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_RESERVATION", "SBATCH_WCKEY"),
)
"""All that a command, and with it a batch script, gets of the server's environment: the rest may hold secrets."""

TIMEOUT_S = 60.0
"""A controller that is busy answers after some seconds; `sbatch` itself tries again for some more."""

PASSING = (
    *("unable to contact", "timed out", "connection refused", "zero bytes", "connect failure", "connection reset"),
    *("authentication", "munge", "credential", "transport endpoint", "temporarily", "unexpected message"),
    *("communication connection failure", "in standby mode", "unable to establish", "resource temporarily"),
)
"""What commands say of failures that pass: the controller or munge is not there, or has no time."""


class SlurmError(PhalanxError):
    """A command of Slurm's failed."""


class SlurmDown(SlurmError):  # noqa: N818
    """Slurm does not answer now. What was asked may have been done or not."""


class SlurmRefused(SlurmError):  # noqa: N818
    """Slurm has answered, and refused."""


class SlurmMissing(SlurmError):  # noqa: N818
    """There are no commands of Slurm's here."""


def run(argv: Sequence[str], text: str = "") -> str:
    """What a command prints. `text` is what it reads."""
    try:
        done = subprocess.run(
            argv, input=text, env=_environment(), capture_output=True, text=True, timeout=TIMEOUT_S, errors="replace"
        )
    except FileNotFoundError:
        raise SlurmMissing(f"{argv[0]}: there is no such command here; install Slurm's client commands") from None
    except subprocess.TimeoutExpired:
        raise SlurmDown(f"{argv[0]} did not answer within {TIMEOUT_S:g} s") from None
    if done.returncode == 0:
        return done.stdout
    complaint = said(done.stderr)
    if _is_passing(complaint):
        raise SlurmDown(f"{argv[0]}: {complaint}")
    raise SlurmRefused(f"{argv[0]}: {complaint or f'exit code {done.returncode}'}")


def said(complaint: str) -> str:
    """What a command complains of, in one line."""
    lines = [line.partition("error: ")[2] or line for line in complaint.splitlines() if line.strip()]
    return "; ".join(dict.fromkeys(line.strip() for line in lines))[:500]


def _is_passing(complaint: str) -> bool:
    return any(word in complaint.lower() for word in PASSING)


def _environment() -> Mapping[str, str]:
    known = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    # In its own language, and with times that mean the same everywhere.
    return {"PATH": os.defpath, **known, "LC_ALL": "C", "TZ": "UTC"}
