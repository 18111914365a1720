"""NVIDIA's Multi-Process Service, by which tasks have parts of a GPU's threads at the same time."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from phalanx.errors import PhalanxError

CONTROL = "nvidia-cuda-mps-control"
MPS_FOLDERS = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
PATIENCE_S = 20.0


class NoMps(PhalanxError):  # noqa: N818
    """A share by MPS where there is no service to give it."""


def has_mps() -> bool:
    """Whether this machine has the service's control program."""
    return shutil.which(CONTROL) is not None


def mps_variables(data: Path) -> dict[str, str]:
    """Where a task finds the service, which is started if it does not run. It goes on when we end, as the tasks do."""
    if not has_mps():
        raise NoMps(f"share by mps: there is no {CONTROL} on this machine; install it with the driver, or ask for less")
    folder = data / "backend" / "mps"
    where = dict(zip(MPS_FOLDERS, (f"{folder}/pipe", f"{folder}/log"), strict=True))
    for path in where.values():
        Path(path).mkdir(parents=True, exist_ok=True)
    if not _answers(where):
        started = subprocess.run(
            [CONTROL, "-d"], env={**os.environ, **where}, capture_output=True, timeout=PATIENCE_S, check=False
        )
        if started.returncode and not _answers(where):
            raise NoMps(f"share by mps: {CONTROL} -d: {started.stderr.decode(errors='replace').strip() or 'it failed'}")
    return where


def _answers(where: dict[str, str]) -> bool:
    """Whether the service runs already."""
    if not os.path.exists(f"{where['CUDA_MPS_PIPE_DIRECTORY']}/control"):
        return False
    asked = subprocess.run(
        [CONTROL],
        input=b"get_server_list\n",
        env={**os.environ, **where},
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return asked.returncode == 0
