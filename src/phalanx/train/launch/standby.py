"""Processes that have imported what takes long and wait to be a rank."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from phalanx.train.launch.bootstrap import READY

BOOTSTRAP = str(Path(__file__).with_name("bootstrap.py"))


class Standbys:
    """So many are kept warm, for one command."""

    def __init__(self, interpreter: Sequence[str], command: Sequence[str], preload: Sequence[str], count: int) -> None:
        self._start = [*interpreter, BOOTSTRAP, "--standby", ",".join(preload), *command]
        self._count = count
        self._waiting: list[asyncio.subprocess.Process] = []
        self._importing: set[int] = set()
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
                self._waiting.append(await self._begin())

    async def _begin(self) -> asyncio.subprocess.Process:
        """The environment of a rank comes later; the group is its own from the beginning."""
        heard, told = os.pipe()
        self._importing.add(heard)
        asyncio.get_running_loop().add_reader(heard, self._imported, heard)
        try:
            return await asyncio.create_subprocess_exec(
                *self._start,
                env={**os.environ, READY: str(told)},
                stdin=asyncio.subprocess.PIPE,
                process_group=0,
                pass_fds=(told,),
            )
        finally:
            os.close(told)

    def _imported(self, heard: int) -> None:
        """One has closed its end, or has ended."""
        asyncio.get_running_loop().remove_reader(heard)
        os.close(heard)
        self._importing.discard(heard)

    @property
    def are_warm(self) -> bool:
        """Whether all that were started have imported what they should."""
        return not self._importing

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
        for heard in list(self._importing):
            self._imported(heard)
        for process in self._waiting:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self._waiting.clear()
