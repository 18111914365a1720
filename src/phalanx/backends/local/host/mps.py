"""NVIDIA's Multi-Process Service, by which tasks have parts of a GPU's threads at the same time."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
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
        started = _call(where, "-d")
        if started.returncode and not _answers(where):
            raise NoMps(f"share by mps: {CONTROL} -d: {started.stderr.strip() or 'it failed'}")
    return where


def why_not() -> str:
    """Why no task can have a part of a GPU's threads here; empty if it can. A service of its own is tried and ended."""
    if not has_mps():
        return f"there is no {CONTROL}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            return _trial(mps_variables(Path(folder)))
        except (NoMps, OSError, subprocess.SubprocessError) as error:
            return str(error)


def _trial(where: dict[str, str]) -> str:
    """Has the service start a server, which opens the GPUs: control programs also run where no server can."""
    try:
        asked = _call(where, text=f"start_server -uid {os.getuid()}\n")
        listed = _call(where, text="get_server_list\n").stdout.strip()
    finally:
        _call(where, text="quit\n")
    return "" if listed else f"no MPS server starts: {(asked.stdout + asked.stderr).strip() or 'no word why'}"


def _answers(where: dict[str, str]) -> bool:
    """Whether the service runs already."""
    if not os.path.exists(f"{where['CUDA_MPS_PIPE_DIRECTORY']}/control"):
        return False
    return _call(where, text="get_server_list\n").returncode == 0


def _call(where: dict[str, str], *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CONTROL, *arguments],
        input=text,
        env={**os.environ, **where},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE_S,
        check=False,
    )
