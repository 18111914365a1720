"""A warm process of an agent: it has imported what takes long, and ranks are forked from it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from phalanx.train.launch.bootstrap import READY

BOOTSTRAP = str(Path(__file__).with_name("bootstrap.py"))
FORK_WITHIN_S = 5.0
"""A template that does not fork by then is not waited for: the rank starts by itself."""


class Forked:
    """A rank that is a child of the template, told of as if it were this process's own."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def returncode(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)


class Template:
    """The process that has imported, and the ranks that came of it."""

    def __init__(self, process: asyncio.subprocess.Process, said: asyncio.StreamReader) -> None:
        self._process, self._said = process, said
        self._forked: dict[int, Forked] = {}
        self._asked: list[asyncio.Future[Forked]] = []
        self.is_warm = False
        self.is_gone = False
        self._listening = asyncio.ensure_future(self._listen())

    @classmethod
    async def started(cls, command: Sequence[str]) -> Template:
        """Its group is its own from the beginning, so that signals for ranks are not for it."""
        heard, told = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, READY: str(told)},
                stdin=asyncio.subprocess.PIPE,
                process_group=0,
                pass_fds=(told,),
            )
        finally:
            os.close(told)
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(heard, "rb"))
        return cls(process, reader)

    async def fork(self, variables: Mapping[str, str]) -> Forked | None:
        """A rank with these variables; None if the template is gone or stands still."""
        assert self._process.stdin is not None
        answer: asyncio.Future[Forked] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
            self._process.stdin.write(json.dumps(dict(variables)).encode() + b"\n")
            await self._process.stdin.drain()
            return await asyncio.wait_for(answer, FORK_WITHIN_S)
        await self.close()
        return None

    async def close(self) -> None:
        """Ends it, and the ranks with it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self) -> None:
        while line := await self._said.readline():
            word, *numbers = line.decode().split()
            if word == "ready":
                self.is_warm = True
            elif word == "forked":
                forked = Forked(int(numbers[0]))
                self._forked[forked.pid] = forked
                self._answer(forked)
            elif word == "ended":
                self._forked.pop(int(numbers[0])).end(int(numbers[1]))
        self.is_gone = True
        for answer in self._asked:
            answer.cancel()
        # A rank never outlives the template.
        for forked in self._forked.values():
            forked.end(-signal.SIGKILL)

    def _answer(self, forked: Forked) -> None:
        answer = self._asked.pop(0)
        if not answer.done():
            answer.set_result(forked)


class Standbys:
    """So many ranks an epoch start warm, for one command."""

    def __init__(self, interpreter: Sequence[str], command: Sequence[str], preload: Sequence[str], count: int) -> None:
        self._start = [*interpreter, BOOTSTRAP, "--standby", ",".join(preload), *command]
        self._count = count
        self._left = 0
        self._template: Template | None = None
        self._lock = asyncio.Lock()

    @classmethod
    def none(cls) -> Standbys:
        """For programs that cannot be forked."""
        return cls([], [], [], 0)

    async def refill(self) -> None:
        """Has a template again, where there is none any more. It imports by itself."""
        async with self._lock:
            self._left = self._count
            if self._count and (self._template is None or self._template.is_gone):
                self._template = await Template.started(self._start)

    @property
    def are_warm(self) -> bool:
        """Whether the template has imported what it should, or there is none to wait for."""
        return self._template is None or self._template.is_warm or self._template.is_gone

    def cover(self, ranks: int) -> bool:
        """Whether so many ranks can start warm."""
        return 0 < ranks <= self._count

    async def take(self, variables: Mapping[str, str]) -> Forked | None:
        """A process that is the rank with these variables; None if it is to be started cold."""
        template = self._template
        if template is None or not self._left or not template.is_warm or template.is_gone:
            return None
        self._left -= 1
        return await template.fork(variables)

    async def close(self) -> None:
        if self._template is not None:
            await self._template.close()
            self._template = None
