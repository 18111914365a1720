"""A real Ray on this machine: a head and nodes on loopback, each a process tree of its own that a test can kill.

Nodes are named by a label, as they have one host name; their GPUs are numbers that Ray counts.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from phalanx.backends.local.host.processes import descendants, process

STORE_BYTES = 80_000_000
CPUS = 2
"""Ray begins a Python for each at once, which takes seconds of a processor."""

READY_S = 600.0
END_S = 20.0
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "600"}


class RayNode:
    """One node: what `ray start` runs, in the foreground. Its end is the end of all of it."""

    def __init__(self, name: str, process_: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process_
        self._was_there = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def raylet(self) -> int:
        """The process that is the node to Ray."""
        return self._named("raylet")

    def gcs(self) -> int:
        """The process that is the head."""
        return self._named("gcs_server")

    def is_stillborn(self) -> bool:
        """Whether the process that is the node was there, and has died: it does where one beside it starts slowly."""
        try:
            self.raylet()
        except LookupError:
            return self._was_there
        self._was_there = True
        return False

    def _named(self, name: str) -> int:
        for each in descendants(self.pid):
            with suppress(OSError):
                if os.path.basename(os.readlink(f"/proc/{each.pid}/exe")) == name:
                    return each.pid
        raise LookupError(f"node {self.name} has no {name}")

    def end(self) -> None:
        """Ends it and everything that it started, however it is. Asked to end, it would take its time."""
        left = [each.pid for each in descendants(self.pid)]
        for pid in (self.pid, *left):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        until_s = time.monotonic() + END_S
        while any((found := process(pid)) and found.state != "Z" for pid in left) and time.monotonic() < until_s:
            time.sleep(0.05)


class RaySite:
    """A Ray cluster. The head is a node like others, unless it has no GPUs."""

    def __init__(self, **settings: str) -> None:
        # The path of a Unix socket is short by law, and Ray's are deep in its folder.
        self.folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.nodes: dict[str, RayNode] = {}
        self._settings = settings
        self._again: dict[str, Callable[[], RayNode]] = {}

    def keep(self) -> RaySite:
        """Has the head find what it knew when it is started again."""
        self._settings |= {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(self.folder / "gcs")}
        return self

    def start_head(self, name: str, gpus: int, cpus: int = CPUS) -> RayNode:
        """Starts the head. One that is started again is not to mind that nodes of the one before it live."""
        self._again[name] = partial(self.start_head, name, gpus, cpus)
        (self.folder / "ray_current_cluster").unlink(missing_ok=True)
        return self._start(name, gpus, cpus, ["--head", f"--port={self.port}", "--include-dashboard=false"])

    def start_node(self, name: str, gpus: int, cpus: int = CPUS, labels: Mapping[str, str] = {}) -> RayNode:
        """Starts a node."""
        self._again[name] = partial(self.start_node, name, gpus, cpus, labels)
        return self._start(name, gpus, cpus, [f"--address={self.address}"], labels)

    def await_ready(self) -> None:
        """Waits until each of its nodes has joined."""
        until_s = time.monotonic() + READY_S
        for node in list(self.nodes.values()):
            while "Ray runtime started" not in node.log.read_text(errors="replace"):
                assert node._process.poll() is None, node.log.read_text(errors="replace")
                if node.is_stillborn():
                    node.end()
                    node = self._again[node.name]()
                assert time.monotonic() < until_s, f"node {node.name}: {node.log.read_text(errors='replace')}"
                time.sleep(0.1)

    def close(self) -> None:
        """Ends all of it."""
        for node in reversed(list(self.nodes.values())):
            node.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, name: str, gpus: int, cpus: int, how: list[str], labels: Mapping[str, str] = {}) -> RayNode:
        told = ",".join(f"{key}={value}" for key, value in {"phalanx.dev/node": name, **labels}.items())
        log = self.folder / f"{name}.log"
        # Logs are not gathered, and no node is to be added.
        spared = ["--include-log-monitor=false", "--no-monitor"]
        head = [f"--temp-dir={self.folder}"] if "--head" in how else []
        with log.open("wb") as out:
            started = subprocess.Popen(
                [
                    *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"),
                    *("--node-ip-address=127.0.0.1", f"--num-cpus={cpus}", f"--num-gpus={gpus}"),
                    *(f"--object-store-memory={STORE_BYTES}", f"--labels={told}", *spared, *head, *how),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **SETTINGS, **self._settings},
                start_new_session=True,
            )
        node = self.nodes[name] = RayNode(name, started, log)
        return node


@cache
def shared_site() -> RaySite:
    """A Ray of two nodes with four GPUs each, up to the last of the tests that want it."""
    made = RaySite()
    atexit.register(end_shared)
    made.start_head("n0", 4)
    made.await_ready()
    made.start_node("n1", 4)
    made.await_ready()
    return made


def shared_driver() -> Path:
    """The folder of the process that talks to the shared one."""
    return shared_site().folder / "driver"


def end_shared() -> None:
    """Ends the shared one, where there is one; the next test that wants it has another."""
    if shared_site.cache_info().currsize:
        shared_site().close()
        shared_site.cache_clear()


def free_port() -> int:
    """A port outside those that Ray gives to workers."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port > 20_000:
            return port
