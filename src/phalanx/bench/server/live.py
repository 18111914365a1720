"""A live server for benchmarks: the process tree of `phalanx up`, and keep-alive clients that cost little."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from phalanx.engine.state.journal import Journal

READY_S = 120.0
API = "/api/v1"


class LiveServer:
    """A server of one's own in a folder."""

    def __init__(self, data: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self.data = data
        self._environment = environment
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self.host, self.port = "127.0.0.1", 0
        self.token = ""

    def start(self) -> float:
        """Starts it; seconds until it was ready."""
        began_s = time.perf_counter()
        # Jobs of a server that is root run as other users, which must be able to pass.
        self.data.parent.chmod(self.data.parent.stat().st_mode | 0o011)
        listen = f"{self.host}:{self.port}"
        command = [sys.executable, "-m", "phalanx", "up", "--data", str(self.data), "--listen", listen, "-o", "json"]
        self._process = subprocess.Popen(
            [*command, *self._options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self._environment,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server in {self.data} did not start; see its log folder")
        ready = json.loads(line)
        self.port = urlsplit(ready["url"]).port or 0
        self.token = Path(ready["token_file"]).read_text().strip()
        return time.perf_counter() - began_s

    def pids(self) -> dict[str, int]:
        """The processes of the tree, by the part they are: up, loop, planner, api."""
        assert self._process is not None
        found = {"up": self._process.pid}
        with suppress(FileNotFoundError):
            for child in Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split():
                with suppress(FileNotFoundError):
                    line = Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace")
                    parts = [part for part in ("loop", "planner", "api") if f"phalanx.server.{part}.process" in line]
                    found.update(dict.fromkeys(parts, int(child)))
        return found

    def kill(self, part: str) -> None:
        """Kills a part without warning; with `up` goes all of it."""
        pid = self.pids().get(part)
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if part == "up" and self._process is not None:
            self._process.wait()
            self._forget()

    def until_ready(self) -> float:
        """Waits until it takes work; seconds that took."""
        began_s = time.perf_counter()
        while time.perf_counter() - began_s < READY_S:
            with suppress(OSError, HTTPException):
                if self.ask("GET", "/readyz")[0] == 200:
                    return time.perf_counter() - began_s
            time.sleep(0.01)
        raise RuntimeError("the server was not ready in time")

    def stop(self) -> None:
        """Stops it, if it runs."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._forget()

    def _forget(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None

    def ask(self, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        """One request on a connection of its own."""
        connection = HTTPConnection(self.host, self.port, timeout=60)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        if key:
            headers["Idempotency-Key"] = key
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read()
            return response.status, json.loads(content) if content else None
        finally:
            connection.close()

    def journal(self) -> Journal:
        """All that it has recorded."""
        connection = HTTPConnection(self.host, self.port, timeout=60)
        connection.request("GET", f"{API}/debug/bundle", headers={"Authorization": f"Bearer {self.token}"})
        content = connection.getresponse().read()
        connection.close()
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return Journal.read(line for line in archive.read("journal.jsonl").splitlines() if line)

    def add_queues(self, *queues: str) -> None:
        """Has queues be there, by a role in each: they have no quotas."""
        for queue in queues:
            status, body = self.ask("PUT", f"{API}/users/admin/roles/{queue}", {"role": "admin"})
            if status != 200:
                raise RuntimeError(f"the queue {queue} was refused: {body}")

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The bytes of a keep-alive request."""
        head = f"{method} {API}{path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {self.token}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return head.encode() + b"\r\n" + body


class Client:
    """A keep-alive connection that reads no more of an answer than it must."""

    def __init__(self, server: LiveServer) -> None:
        self._server = server
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Sends a request and reads its answer."""
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(
                self._server.host, self._server.port, limit=1 << 26
            )
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        length = next(
            int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        )
        return status, await self._reader.readexactly(length)

    def close(self) -> None:
        """Hangs up."""
        if self._writer is not None:
            self._writer.close()
