"""A subject: a backend under test and the world it works on, as the suite needs them."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from hosted import TURN_MS, HostedBackend
from programs import COMMANDS, Program

from phalanx.backends.capability import Offer
from phalanx.backends.live import Adopted
from phalanx.backends.local.backend import LocalBackend
from phalanx.backends.local.host.cgroup import find_grounds
from phalanx.backends.local.host.offer import local_offer
from phalanx.backends.local.host.processes import Process, process, processes, variable
from phalanx.backends.local.orders import Yard
from phalanx.engine.backend import Backend
from phalanx.workload.job import Execution, Job

PATIENCE_S = 240.0
"""Far longer than anything takes; only a failing test waits so long."""


class Subject(Protocol):
    """What the suite does to a backend and its world."""

    offer: Offer
    programs: frozenset[Program]

    def job(self, job: Job, program: Program) -> Job:
        """A job that does something."""

    def open(self, apart: bool) -> Backend:
        """The backend; `apart` in a process of its own that can be killed."""

    def adopt(self, attempts: Iterable[Adopted], now: int) -> None:
        """Has the backend take over."""

    def crash(self) -> None:
        """Kills the scheduler's process."""

    def now(self) -> int:
        """The time in milliseconds."""

    def jump(self, by_ms: int) -> None:
        """Sets the clock."""

    def wait(self, next_ms: int | None) -> bool:
        """Waits until something may have happened, at most until a moment; False if nothing ever will."""

    def living(self, job: str) -> int:
        """Tasks of a job that live in the world."""

    def processes(self, job: str) -> list[Process]:
        """All processes of a job, wherever they went."""

    def keeper(self, job: str) -> int:
        """The process that looks after a job's tasks."""

    def sabotage(self, job: str, rank: int) -> None:
        """Has the first start of a job fail at one task."""

    def printed(self, job: str, rank: int) -> int:
        """Bytes that a task has printed."""

    def close(self) -> None:
        """Clears everything away."""


class LocalSubject:
    """Processes on this machine."""

    programs = frozenset(Program)

    def __init__(self) -> None:
        self.data = Path(tempfile.mkdtemp(prefix="conformance-"))
        self.yard = self._make_yard()
        self.offer = self._look_around()
        self.jobs: dict[str, Job] = {}
        self._ahead_ms = 0
        self._woken = threading.Event()
        self._backend: LocalBackend | HostedBackend | None = None

    def _make_yard(self) -> Yard:
        return Yard(self.data, pens=find_grounds(), turn_ms=TURN_MS)

    def _look_around(self) -> Offer:
        return local_offer(self.yard)

    def _open_here(self) -> LocalBackend:
        return LocalBackend(self.yard, self.jobs.__getitem__)

    def _open_apart(self) -> HostedBackend:
        return HostedBackend(self.data, self.jobs)

    def job(self, job: Job, program: Program) -> Job:
        env = (("FAILING", dict(job.labels).get("failing", "")),)
        job = replace(job, execution=Execution(COMMANDS[program], env=env))
        self.jobs[job.id] = job
        return job

    def open(self, apart: bool) -> Backend:
        backend = self._open_apart() if apart else self._open_here()
        backend.wake = self._woken.set
        self._backend = backend
        return backend

    def adopt(self, attempts: Iterable[Adopted], now: int) -> None:
        assert self._backend is not None
        self._backend.adopt(attempts, now)

    def crash(self) -> None:
        assert isinstance(self._backend, HostedBackend)
        self._backend.kill()

    def now(self) -> int:
        return int(time.time() * 1000) + self._ahead_ms

    def jump(self, by_ms: int) -> None:
        self._ahead_ms += by_ms

    def wait(self, next_ms: int | None) -> bool:
        # What the kernel does wakes nobody: a process that is gone is seen at the next look.
        self._woken.wait(0.02)
        self._woken.clear()
        return True

    def living(self, job: str) -> int:
        """Those put down in the folders of its attempts, unless their numbers mean other processes by now."""
        papers = (json.loads(path.read_text()) for path in (self.data / "jobs" / job).glob("*/state.json"))
        tasks = [task for paper in papers for task in paper["tasks"]]
        return sum(1 for task in tasks if self._is_there(task["pid"], task["began"]))

    def _is_there(self, pid: int, began: int) -> bool:
        found = process(pid)
        return found is not None and found.state != "Z" and found.began == began

    def processes(self, job: str) -> list[Process]:
        """All processes of a job, whoever their parents are."""
        prefix = f"{self.data}/jobs/{job}/"
        return [
            each
            for each in processes()
            if each.state != "Z" and (variable(each.pid, "PHALANX_NOTICE_FILE") or "").startswith(prefix)
        ]

    def keeper(self, job: str) -> int:
        """The process that looks after a job's tasks."""
        return next(each.parent for each in self.processes(job) if self._is_shepherd(each.parent))

    def _is_shepherd(self, pid: int) -> bool:
        try:
            return b"shepherd" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    def sabotage(self, job: str, rank: int) -> None:
        (self.data / "jobs" / job / "1" / f"{rank}.out").mkdir(parents=True)

    def printed(self, job: str, rank: int) -> int:
        newest = max(
            (path for path in (self.data / "jobs" / job).iterdir() if path.name.isdigit()), key=lambda p: p.name
        )
        path = newest / f"{rank}.out"
        return path.stat().st_size if path.exists() else 0

    def close(self) -> None:
        if self._backend is not None:
            self._backend.close()
        last = self._open_here()
        last.adopt((), self.now())
        deadline_s = time.monotonic() + PATIENCE_S
        while any((self.data / "backend" / "live").iterdir()) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        last.close()
        self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self.data)
