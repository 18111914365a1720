"""The batch script of an attempt: it starts one process on each node, which looks after the tasks there."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[3])
PROGRAM = (
    "import sys; sys.path.append(sys.argv[2]); from phalanx.backends.slurm.node_agent import main; main(sys.argv[1])"
)
"""Started without site-packages: it needs the standard library only, and must start fast."""


def batch_script(folder: str, parts: int) -> str:
    """What Slurm runs on the first node. A task that fails ends the step, and with it the gang."""
    step = ["srun", "--overlap", "--kill-on-bad-exit=1", "--wait=0", "--input=none", "--mpi=none", "--cpu-bind=none"]
    if parts > 1:
        step.append(f"--het-group=0-{parts - 1}")
    argv = [*step, "--", sys.executable, "-I", "-S", "-c", PROGRAM, folder, ROOT]
    return f"#!/bin/sh\nexec {shlex.join(argv)}\n"
