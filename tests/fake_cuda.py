"""A fake of NVIDIA's driver, compiled from `fake_cuda.c`, for what suspends jobs on machines without a GPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_cuda.c")

USES_CUDA = 'touch "$FAKE_CUDA/uses/$$"; '
"""What a shell says first that is to count as a process that uses CUDA."""


class FakeDriver:
    """The library, and the folder in which it keeps what it pretends."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("needs a C compiler; to run it: apt-get install gcc")
        self.folder = folder
        for name in (".", "uses", "state"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name).chmod(0o777)
        self.library = folder / "libfakecuda.so"
        define = f'-DFOLDER="{folder}"'
        subprocess.run([compiler, "-shared", "-fPIC", define, "-o", self.library, SOURCE], check=True)
        self.library.chmod(0o755)

    def fail(self, call: str, error: int) -> None:
        """Has every such call give an error from now on; 0 is none."""
        (self.folder / f"fail-{call}").write_text(str(error))

    def slow(self, call: str, ms: int) -> None:
        """Has every such call take so long."""
        (self.folder / f"slow-{call}").write_text(str(ms))

    def calls(self) -> list[str]:
        """What it was asked so far, without the numbers of processes."""
        return [" ".join((words[0], *words[2:])) for words in self._lines()]

    def state(self, pid: int) -> int:
        """Where a process is: running, locked or checkpointed (0, 1, 2)."""
        path = self.folder / "state" / str(pid)
        return int(path.read_text()) if path.exists() else 0

    def users(self) -> list[int]:
        """Processes that said they use CUDA."""
        return sorted(int(path.name) for path in (self.folder / "uses").iterdir())

    def _lines(self) -> list[list[str]]:
        path = self.folder / "calls"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []
