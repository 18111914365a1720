"""A backend in a process of its own, which a test can kill as the kernel would.

`python hosted.py DATA [slurm | kubernetes KUBECONFIG NAMESPACE IMAGE | RAY DRIVER]` reads requests and writes events, a
line of JSON each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import SimpleQueue

import msgspec

from phalanx.backends.live import Adopted, LiveBackend
from phalanx.backends.local.backend import LocalBackend
from phalanx.backends.local.host.cgroup import find_grounds
from phalanx.backends.local.orders import Yard
from phalanx.backends.slurm.backend import SlurmBackend
from phalanx.backends.slurm.orders import NodeYard
from phalanx.cluster.cluster import Cluster, Node
from phalanx.protocol.action import Action
from phalanx.protocol.event import Event
from phalanx.workload.job import Job

TURN_MS = 300
CLUSTER = Cluster(tuple(Node(f"n{i}", (), 4, memory_mb=4096) for i in range(2)))


class CarryOut(msgspec.Struct, tag=True):
    """An action to be carried out, and the job it is about."""

    action: Action
    job: Job
    now: int


class Adopt(msgspec.Struct, tag=True):
    """Attempts to be taken over, and all jobs."""

    attempts: tuple[Adopted, ...]
    jobs: dict[str, Job]
    now: int


class Adopting(msgspec.Struct, tag=True):
    """Everything has been taken over."""


Request = CarryOut | Adopt


class HostedBackend:
    """Speaks to a backend in another process."""

    def __init__(self, data: Path, jobs: dict[str, Job], *how: str) -> None:
        self.wake: Callable[[], None] = lambda: None
        self._jobs = jobs
        self._events: deque[Event] = deque()
        self._adopted: SimpleQueue[None] = SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(data), *how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def carry_out(self, action: Action, now: int) -> None:
        self._write(CarryOut(action, self._jobs[action.id.job], now))

    def events(self, now: int) -> list[Event]:
        return [self._events.popleft() for _ in range(len(self._events))]

    def next_event_ms(self) -> int | None:
        return None

    def adopt(self, attempts: Iterable[Adopted], now: int) -> None:
        self._write(Adopt(tuple(attempts), self._jobs, now))
        self._adopted.get(timeout=30)

    def kill(self) -> None:
        """Ends the process without a word, as SIGKILL does; what it had reported and nobody read is lost."""
        self._process.kill()
        self._end()
        self._events.clear()

    def close(self) -> None:
        if self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._end()

    def _end(self) -> None:
        self._process.wait(30)
        self._reader.join(30)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

    def _write(self, request: Request) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(request) + b"\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        decoder = msgspec.json.Decoder(Event | Adopting)
        for line in self._process.stdout:
            event = decoder.decode(line)
            if isinstance(event, Adopting):
                self._adopted.put(None)
            else:
                self._events.append(event)
                self.wake()


def opened(data: Path, jobs: dict[str, Job], how: list[str]) -> LiveBackend:
    if not how:
        return LocalBackend(Yard(data, pens=find_grounds(), turn_ms=TURN_MS), jobs.__getitem__)
    if how == ["slurm"]:
        return SlurmBackend(NodeYard(data), jobs.__getitem__, lambda: CLUSTER)
    if how[0] == "kubernetes":
        from kubernetes_subject import opened as on_kubernetes

        return on_kubernetes(data, jobs, *how[1:])
    from phalanx.backends.ray.backend import RayBackend
    from phalanx.backends.ray.yard import RayYard

    address, driver = how
    yard = RayYard(data, address=address, driver=Path(driver), site=data.name, cluster=lambda: CLUSTER)
    return RayBackend(yard, jobs.__getitem__)


def main(data: Path, how: list[str]) -> None:
    jobs: dict[str, Job] = {}
    backend = opened(data, jobs, how)
    lock = threading.Lock()

    def say(message: Event | Adopting) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
        sys.stdout.buffer.flush()

    def report() -> None:
        with lock:
            for event in backend.events(0):
                say(event)

    backend.wake = report
    decoder = msgspec.json.Decoder(Request)
    for line in sys.stdin.buffer:
        request = decoder.decode(line)
        match request:
            case CarryOut(action=action, job=job, now=now):
                jobs[job.id] = job
                backend.carry_out(action, now)
            case Adopt(attempts=attempts, jobs=known, now=now):
                jobs.update(known)
                backend.adopt(attempts, now)
                with lock:
                    say(Adopting())
    backend.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
