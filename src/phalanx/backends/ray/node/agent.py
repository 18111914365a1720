"""The agent of a node: a detached actor that runs the tasks of all gangs there and tells what became of them.

It holds nothing of what a gang is given: that is reserved by the gang's placement groups.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import Any

import ray

from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.wire import Message
from phalanx.backends.ray.node.member import Member
from phalanx.backends.ray.node.probe import Probe
from phalanx.backends.ray.node.tidy import remove_empty, remove_old

LOOK_S = 0.05
"""How often it is looked whether a task has printed something."""


class Agent:
    """Runs members. `scratch` is where their folders are on this node, `root` where the shepherd's program is."""

    def __init__(self, scratch: str, root: str) -> None:
        node = ray.get_runtime_context().get_node_id()[:12]
        remove_old(scratch, node, time.time())
        self._scratch = f"{scratch}/{node}"
        self._root = root
        self._members: dict[str, Member] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._probe = Probe()

    async def free_port(self) -> int:
        """A port that is free now, for rank 0 to listen on."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return int(probe.getsockname()[1])

    async def devices(self, group: Any, asked: list[tuple[int, int]]) -> dict[int, list[int]]:
        """Which GPUs Ray gave to bundles of a placement group; `asked` are their numbers and how many GPUs each has."""
        return await self._probe.devices(group, asked)

    async def begin(self, key: str, order: dict[str, Any]) -> None:
        """Begins a member, unless it has begun."""
        if key in self._members:
            return
        member = self._members[key] = Member(AttemptFolder(f"{self._scratch}/{key}"), self._root)
        changed = self._changed[key] = asyncio.Event()
        try:
            member.begin(order)
        except OSError:
            del self._members[key], self._changed[key]
            member.remove()
            raise
        assert member.wire is not None
        asyncio.get_running_loop().add_reader(member.wire.fileno(), self._hear, member, changed)

    async def tell(self, key: str, message: Message) -> bool:
        """Passes a message on to a member's shepherd; False if there is none."""
        return key in self._members and self._members[key].tell(message)

    async def gang(self, key: str, gang: dict[str, Any]) -> None:
        """Has the tasks of a member find who is in their gang."""
        if key in self._members:
            self._members[key].write_gang(gang)

    async def news(self, key: str, answers: int, offsets: dict[str, int], wait_s: float) -> dict[str, Any] | None:
        """What is new of a member: answers beyond the first few, its end, what it printed. None: it is not known here.

        It waits for news, but not for ever. The end is told once all that was printed has been.
        """
        if key not in self._members:
            return None
        member, changed, until_s = self._members[key], self._changed[key], time.monotonic() + wait_s
        while True:
            changed.clear()
            is_over = member.wire is None
            (known, ending), printed = member.state(), member.printed(offsets)
            if printed or is_over or len(known) > answers or time.monotonic() > until_s:
                ended = is_over and not printed
                return {"answers": known[answers:], "ending": ending if ended else None, "printed": printed}
            try:
                await asyncio.wait_for(changed.wait(), LOOK_S)
            except TimeoutError:
                continue

    async def forget(self, key: str) -> None:
        """Removes what has ended."""
        member = self._members.pop(key, None)
        self._changed.pop(key, None)
        if member is not None:
            member.remove()
            remove_empty(os.path.dirname(member.folder.path), self._scratch)

    async def members(self, site: str) -> list[str]:
        """The members of one site's gangs that are here."""
        return [key for key in self._members if key.startswith(f"{site}/")]

    def _hear(self, member: Member, changed: asyncio.Event) -> None:
        assert member.wire is not None
        handle = member.wire.fileno()
        if not member.hear(changed.set):
            asyncio.get_running_loop().remove_reader(handle)
            member.part()
            changed.set()
