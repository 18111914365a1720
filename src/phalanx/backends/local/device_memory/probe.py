"""Whether this machine can move device memory to the host: asked of a process of its own, which ends again."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from phalanx.backends.local.device_memory.start import DRIVER_VARIABLE, PROGRAM
from phalanx.backends.local.host.gpus import DriverError, find_gpus

TIMEOUT_S = 30.0


def why_not() -> str:
    """Why device memory cannot be moved here; empty if it can."""
    try:
        if not os.environ.get(DRIVER_VARIABLE) and not find_gpus():
            return "there are no NVIDIA GPUs here"
    except DriverError as error:
        return str(error)
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", PROGRAM],
            input=json.dumps({"do": "probe"}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        answer = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"the NVIDIA driver could not be asked: {error}"
    return "" if answer["ok"] else str(answer["reason"])
