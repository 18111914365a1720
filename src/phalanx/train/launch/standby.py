"""Processes that have imported what takes long and wait to be a rank."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

BOOTSTRAP = str(Path(__file__).with_name("bootstrap.py"))


class Standbys:
    """So many are kept warm, for one command."""

    def __init__(self, interpreter: Sequence[str], command: Sequence[str], preload: Sequence[str], count: int) -> None:
        self._start = [*interpreter, BOOTSTRAP, "--standby", ",".join(preload), *command]
        self._count = count
        self._waiting: list[asyncio.subprocess.Process] = []
        self._lock = asyncio.Lock()

    @classmethod
    def none(cls) -> Standbys:
        """For programs that no standby can become."""
        return cls([], [], [], 0)

    async def refill(self) -> None:
        """Starts those that are missing. They import by themselves."""
        async with self._lock:
            self._waiting = [each for each in self._waiting if each.returncode is None]
            while len(self._waiting) < self._count:
                # The environment of a rank comes later; the group is its own from the beginning.
                self._waiting.append(
                    await asyncio.create_subprocess_exec(
                        *self._start, env=os.environ, stdin=asyncio.subprocess.PIPE, process_group=0
                    )
                )

    def take(self, variables: Mapping[str, str]) -> asyncio.subprocess.Process | None:
        """A process that becomes the rank with these variables; None if none waits."""
        while self._waiting:
            process = self._waiting.pop(0)
            if process.returncode is None and process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.write(json.dumps(dict(variables)).encode() + b"\n")
                    process.stdin.close()
                    return process
        return None

    async def close(self) -> None:
        for process in self._waiting:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self._waiting.clear()
