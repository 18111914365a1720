"""States of Slurm's jobs, and how jobs of a trace end."""

from __future__ import annotations

from phalanx.simulate.trace import Ending

ENDINGS = {
    "COMPLETED": Ending.COMPLETED,
    "CANCELLED": Ending.CANCELLED,
    **dict.fromkeys(
        ("FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED", "REVOKED"),
        Ending.FAILED,
    ),
}
NOT_ENDED = ("PENDING", "RUNNING", "REQUEUED", "RESIZING", "SUSPENDED", "COMPLETING", "CONFIGURING")


def ending_of(text: str) -> Ending | None:
    """How a job ended, as `CANCELLED by 1000` tells; None if it has not. Any other word raises ValueError."""
    words = text.strip().upper().split()
    word = words[0].rstrip("+") if words else ""
    if word in ENDINGS:
        return ENDINGS[word]
    if word in NOT_ENDED:
        return None
    raise ValueError(text)
