"""Messages between agents: lines of JSON over connections that each agent opens to those it tells something.

Nothing is sent twice: what is said counts now, and is said again with the next beat.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from phalanx.train.launch.epoch import Agent

LINE_MOST = 1 << 20
QUEUE_MOST = 1000
CONNECT_TIMEOUT_S = 2.0

Address = tuple[str, int]


class Network:
    """One agent's connections."""

    def __init__(self, on_message: Callable[[Mapping[str, Any]], None], on_closed: Callable[[str], None]) -> None:
        self._on_message, self._on_closed = on_message, on_closed
        self._queues: dict[Address, asyncio.Queue[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []

    async def listen(self, host: str, port: int) -> int:
        """Takes connections there; the port, where any was asked for."""
        server = await asyncio.start_server(self._hear, host, port, limit=LINE_MOST)
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    def send(self, to: Address, source: Agent, message: Mapping[str, Any]) -> None:
        """Sends as soon as there is a connection; what cannot be sent is forgotten."""
        queue = self._queues.get(to)
        if queue is None:
            queue = self._queues[to] = asyncio.Queue(QUEUE_MOST)
            self._start(self._deliver(to, queue))
        with contextlib.suppress(asyncio.QueueFull):
            queue.put_nowait(json.dumps({**message, "from": source.name}).encode() + b"\n")

    async def close(self) -> None:
        """Lets what was said go out, and ends."""
        for _ in range(20):
            if all(queue.empty() for queue in self._queues.values()):
                break
            await asyncio.sleep(0.01)
        for task in self._tasks:
            task.cancel()
        for server in self._servers:
            server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, to: Address, queue: asyncio.Queue[bytes]) -> None:
        writer: asyncio.StreamWriter | None = None
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(*to), CONNECT_TIMEOUT_S)
            assert writer is not None
            while True:
                writer.write(await queue.get())
                await writer.drain()
        except (OSError, TimeoutError):
            return
        finally:
            self._queues.pop(to, None)
            if writer is not None:
                writer.close()

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        source = ""
        try:
            while line := await reader.readline():
                message = json.loads(line)
                source = message["from"]
                self._on_message(message)
        except (OSError, ValueError, KeyError, TypeError, asyncio.CancelledError):
            # Not an agent, or one that speaks otherwise; or the end, of which asyncio would print a traceback.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            if source:
                self._on_closed(source)
