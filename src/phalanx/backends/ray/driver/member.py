"""A member of a gang as the driver sees it: what its shepherd answered, and what its tasks have printed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from phalanx.backends.local.attempt_files import Answer, Ending
from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.logs.times import note_time
from phalanx.backends.local.wire import Message
from phalanx.backends.ray.driver.cluster import answer_of

WAIT_S, PATIENCE_S = 10.0, 60.0
"""How long an agent waits for news, and how long it may then be silent."""


class RemoteMember:
    """The part of a gang on one node. `bases` say how long each log was when this member began to print."""

    def __init__(self, node: str, agent_name: str, key: str, folder: AttemptFolder) -> None:
        self.node = node
        self.agent_name = agent_name
        self.agent: Any = None
        self.key = key
        self.answers: dict[int, Answer] = {}
        self.ending: Ending | None = None
        self.leaving = False
        self.is_begun = False
        self.bases: dict[str, int] = {}
        self._folder = folder
        self._watch: asyncio.Task[None] | None = None

    async def begin(self, order: dict[str, Any], on_news: Callable[[], None]) -> None:
        """Begins it on its node, and listens to it from then on."""
        await answer_of(self.agent.do.remote("begin", self.key, order))
        self.listen(on_news)

    def listen(self, on_news: Callable[[], None]) -> None:
        """Takes in what is new of it until it has ended."""
        self.is_begun = True
        self._watch = asyncio.create_task(self._listen(on_news))

    async def tell(self, message: Message) -> None:
        """Tells its shepherd something; one that is gone will be told of by its end."""
        with suppress(Exception):
            await answer_of(self.agent.do.remote("tell", self.key, message))

    async def write_gang(self, gang: dict[str, Any]) -> None:
        """Has its tasks find who is in the gang."""
        if self.is_begun and self.ending is None:
            with suppress(Exception):
                await answer_of(self.agent.do.remote("gang", self.key, gang))

    async def forget(self) -> None:
        """Has its node remove what it left."""
        if self._watch is not None:
            self._watch.cancel()
        with suppress(Exception):
            await answer_of(self.agent.do.remote("forget", self.key), 5.0)

    def stop_listening(self) -> None:
        """Hears no more of it."""
        if self._watch is not None:
            self._watch.cancel()

    def lose(self, reason: str) -> None:
        """It has ended in a way that its node cannot tell."""
        self.is_begun = True
        self.ending = Ending(outcome="lost", exit_code=0, reason=f"lost: node {self.node}: {reason}")

    async def _listen(self, on_news: Callable[[], None]) -> None:
        while self.ending is None:
            try:
                asked = self.agent.do.remote("news", self.key, len(self.answers), self._offsets(), WAIT_S)
                news = await answer_of(asked, PATIENCE_S)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if type(error).__name__ == "ActorUnavailableError":
                    await asyncio.sleep(1)
                    continue
                self.lose(_first_line(error))
            else:
                self._take_in(news)
            on_news()

    def _take_in(self, news: dict[str, Any] | None) -> None:
        if news is None:
            self.lose("its agent was restarted")
            return
        for name, printed in news["printed"].items():
            self._append(name, printed)
        self.answers |= {answer["seq"]: answer for answer in news["answers"]}
        self.ending = news["ending"]

    def _offsets(self) -> dict[str, int]:
        """How far each log is known, counted from where this member began it."""
        sizes = {os.path.basename(path): stat.st_size for path, stat in self._folder.logs()}
        return {name: size - self.bases.get(name, 0) for name, size in sizes.items()}

    def _append(self, name: str, printed: bytes) -> None:
        path = f"{self._folder.path}/{name}"
        with open(path, "ab") as log:
            log.write(printed)
            size = log.tell()
        with suppress(OSError):
            note_time(path, size, int(time.time() * 1000))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if "died" in line or "dead" in line), lines[0] if lines else repr(error))
    return told[:300]
