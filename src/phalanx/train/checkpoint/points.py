"""Named points of a checkpoint's life, where a drill may kill the trainer.

`PHALANX_KILL_AT=persist@40` kills the whole trainer (this process, and the trainer that it serves) when the point
`persist` is reached for step 40 or a later one; `persist@40@1` does so in rank 1 alone. Unset, a point costs one look
at the environment, a few times a step.
"""

from __future__ import annotations

import os
import signal

ENVIRONMENT = "PHALANX_KILL_AT"

POINTS = (
    "before-forward",
    "in-forward",
    "in-backward",
    "in-all-reduce",
    "before-optimizer",
    "in-optimizer",
    "snapshot-start",
    "snapshot-middle",
    "replicate",
    "persist",
    "commit",
    "retire",
)
"""In the order of a step. The first six lie in the training loop, the rest in the checkpointer."""


def reached(point: str, step: int, rank: int, trainer_pid: int | None = None) -> None:
    """Dies here, together with the trainer, if a drill says so."""
    drill = os.environ.get(ENVIRONMENT)
    if drill and _is_meant(drill, point, step, rank):
        if trainer_pid is not None:
            os.kill(trainer_pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def _is_meant(drill: str, point: str, step: int, rank: int) -> bool:
    where, _, rest = drill.partition("@")
    first, _, whose = rest.partition("@")
    return where == point and step >= int(first) and (not whose or rank == int(whose))
