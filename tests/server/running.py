"""Real servers for tests: the whole process tree, started and killed like any other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2

PATIENCE_S = 240.0


class Server:
    """A running server and a client that speaks to it as its admin."""

    def __init__(self, data: Path, *options: str, prefix: Sequence[str] = (), **environment: str) -> None:
        self.data = data
        self._options = options
        self._prefix = prefix
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self._port = 0
        self._clients: list[httpx2.Client] = []
        self.client = httpx2.Client()

    def begin(self, passable: bool = True) -> None:
        """Starts it and does not wait."""
        if passable:
            make_passable(self.data)
        command = [sys.executable, "-m", "phalanx", "up"]
        arguments = ["--data", str(self.data), "--listen", f"127.0.0.1:{self._port}", "-o", "json", *self._options]
        self._process = subprocess.Popen(
            [*self._prefix, *command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self._environment},
        )

    def start(self, passable: bool = True) -> Server:
        """Starts it and waits until it is ready."""
        self.begin(passable)
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the server did not start: {self._process.communicate()[1]}"
        ready = json.loads(line)
        self.url = ready["url"]
        token = Path(ready["token_file"]).read_text().strip()
        self.client = self.as_user(token)
        return self

    def restart_at(self, port: int) -> Server:
        """Starts it again where it was, for those who still look for it there."""
        self._port = port
        return self.start()

    def as_user(self, token: str) -> httpx2.Client:
        """A client with a token."""
        client = httpx2.Client(
            base_url=f"{self.url}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE_S
        )
        self._clients.append(client)
        return client

    def with_queues(self, *queues: str) -> Server:
        """Has queues be there, by a role in each: they have no quotas."""
        for queue in queues:
            self.client.put(f"/users/admin/roles/{queue}", json={"role": "admin"}).raise_for_status()
        return self

    def kill(self, part: str = "") -> None:
        """Kills a part of the tree, or `up` and with it all, with no warning."""
        assert self._process is not None
        os.kill(self.pid(part) if part else self._process.pid, signal.SIGKILL)
        if not part:
            self._process.wait()
            self._close()

    def pid(self, part: str) -> int:
        """The process of a part: loop, planner or api."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for child in children:
            if f"phalanx.server.{part}.process" in Path(f"/proc/{child}/cmdline").read_bytes().decode():
                return int(child)
        raise AssertionError(f"there is no {part}")

    def ready_text(self) -> str:
        """All that `up -o table` prints when it is ready."""
        assert self._process is not None
        assert self._process.stdout is not None
        lines: list[str] = []
        while not lines or "Logs are in" not in lines[-1]:
            line = self._process.stdout.readline()
            assert line, f"the server did not start: {self._process.communicate()[1]}"
            lines.append(line)
        return "".join(lines)

    def told(self) -> str:
        """The next line that `up` tells whoever started it."""
        assert self._process is not None
        assert self._process.stderr is not None
        return self._process.stderr.readline()

    def stop(self) -> None:
        """Stops it as an operator would."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            assert self._process.wait(PATIENCE_S) == 0
        self._close()

    def process_id(self) -> int:
        """The process of `up`."""
        assert self._process is not None
        return self._process.pid

    def _close(self) -> None:
        for client in (self.client, *self._clients):
            client.close()
        if self._process is not None:
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()

    def submit(self, **job: Any) -> dict[str, Any]:
        """Submits a job file."""
        response = self.client.post("/jobs", json={"command": "true", **job})
        assert response.status_code == 201, response.text
        return dict(response.json())

    def job(self, ref: str) -> dict[str, Any]:
        """Shows a job."""
        return dict(self.client.get(f"/jobs/{ref}").raise_for_status().json())

    def wait(self, ref: str, *states: str) -> dict[str, Any]:
        """Waits until a job is in one of some states."""
        found = eventually(lambda: job if (job := self.job(ref))["state"] in states else None)
        return dict(found)


def make_passable(data: Path) -> None:
    """Lets jobs of a server that is root, which run as other users, reach a folder that pytest has closed to them."""
    for folder in data.parents:
        if folder.stat().st_mode & 0o001 == 0:
            folder.chmod(folder.stat().st_mode | 0o011)


def eventually(look: Callable[[], Any], patience_s: float = PATIENCE_S, every_s: float = 0.02) -> Any:
    """Looks again and again until there is something to see."""
    deadline_s = time.monotonic() + patience_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(every_s)
