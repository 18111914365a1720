"""What servers ask of the driver: to take an attempt on; and what it tells them: which nodes Ray has."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import suppress

from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.wire import Message, Wire
from phalanx.backends.ray.driver.cluster import RayCluster
from phalanx.backends.ray.driver.foreign import ForeignWork
from phalanx.backends.ray.driver.gang import Gang

LOOK_S, AGAIN_S = 1.0, 2.0
SILENT_S = 10.0
"""Ray does not answer if it has not for so long."""

IDLE_S = 5.0
"""How long it stays with no server and no gang."""


class Service:
    """Serves all that connect to `door`."""

    def __init__(self, address: str, door: socket.socket, first: Wire) -> None:
        self._cluster = RayCluster(address)
        self._door = door
        self._lines: list[Wire] = []
        self._gangs: dict[str, Gang] = {}
        self._runs: set[asyncio.Task[None]] = set()
        self._connected = asyncio.Event()
        self._foreign = ForeignWork()
        self._told: Message = {}
        self._idle_since = time.monotonic()
        self._admit(first)

    async def run(self) -> None:
        """Serves until there is nothing to serve any more."""
        asyncio.get_running_loop().add_reader(self._door.fileno(), self._accept)
        connecting = asyncio.create_task(self._connect())
        try:
            while not self._is_idle():
                await asyncio.sleep(LOOK_S)
                if self._connected.is_set():
                    await self._look()
        finally:
            connecting.cancel()

    def _is_idle(self) -> bool:
        if self._lines or self._gangs:
            self._idle_since = time.monotonic()
        return time.monotonic() - self._idle_since > IDLE_S

    async def _connect(self) -> None:
        while True:
            try:
                await self._cluster.connect()
            except Exception as error:
                self._say({"unreachable": _told_by(error, self._cluster.address)})
                await asyncio.sleep(AGAIN_S)
            else:
                self._connected.set()
                return

    async def _look(self) -> None:
        try:
            nodes = await asyncio.wait_for(self._cluster.nodes(), SILENT_S)
            used = await asyncio.wait_for(self._cluster.used(), SILENT_S)
        except Exception as error:
            self._say({"unreachable": _told_by(error, self._cluster.address)})
        else:
            self._foreign.look(used, [gang.holds() for gang in self._gangs.values()])
            self._say({"nodes": sorted(nodes), "foreign": self._foreign.found})

    def _say(self, message: Message) -> None:
        """Tells all servers what is new."""
        if message != self._told:
            self._told = message
            for line in self._lines:
                line.send(message)

    def _accept(self) -> None:
        with suppress(OSError):
            self._admit(Wire(self._door.accept()[0]))

    def _admit(self, line: Wire) -> None:
        self._lines.append(line)
        asyncio.get_running_loop().add_reader(line.fileno(), self._hear, line)
        if self._told:
            line.send(self._told)

    def _hear(self, line: Wire) -> None:
        messages = line.receive()
        for message in messages or ():
            if message["do"] == "take":
                self._take(message, line.files.pop(0))
            elif message["do"] == "leave":
                os._exit(0)
        if messages is None:
            asyncio.get_running_loop().remove_reader(line.fileno())
            self._lines.remove(line)
            line.close()

    def _take(self, message: Message, handle: int) -> None:
        wire = Wire(socket.socket(fileno=handle))
        path = message["path"]
        if path in self._gangs:
            self._gangs[path].admit(wire)
            self._gangs[path].show(wire)
            return
        folder = AttemptFolder(path)
        lock = folder.lock()
        state = folder.state()
        if lock is None or (state is not None and state["ending"] is not None):
            wire.close()
            return
        gang = self._gangs[path] = Gang(folder, lock, self._cluster, message["site"])
        run = asyncio.create_task(self._run(path, gang, wire))
        self._runs.add(run)
        run.add_done_callback(self._runs.discard)

    async def _run(self, path: str, gang: Gang, wire: Wire) -> None:
        await self._connected.wait()
        try:
            await gang.run(wire)
        finally:
            del self._gangs[path]


def _told_by(error: Exception, address: str) -> str:
    words = " ".join(str(error).split())[:300]
    return f"Ray at {address} does not answer: {words}" if words else f"Ray at {address} does not answer"
