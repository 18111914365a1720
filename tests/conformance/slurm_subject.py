"""Jobs on a real Slurm cluster of two nodes, one for all cases of a process."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from hosted import CLUSTER, HostedBackend
from programs import Program
from subject import PATIENCE_S, LocalSubject

from phalanx.backends.slurm.backend import SlurmBackend
from phalanx.backends.slurm.offer import offer_with
from phalanx.backends.slurm.orders import NodeYard
from phalanx.engine.backend import Backend
from slurm_cluster import shared_cluster


class SlurmSubject(LocalSubject):
    """Jobs on Slurm. Its processes are on this machine, whatever node they are on."""

    programs = frozenset(Program) - {Program.HUNGRY}
    slowness = 3
    """So many times fewer kills: each start takes a second."""

    offer = offer_with({})

    def __init__(self) -> None:
        super().__init__()
        self.offer = offer_with({})
        self.yard = NodeYard(self.data)

    def open(self, apart: bool) -> Backend:
        shared_cluster()
        backend = HostedBackend(self.data, self.jobs, "slurm") if apart else self._made()
        backend.wake = self._woken.set
        self._backend = backend  # type: ignore[assignment]
        return backend

    def _made(self) -> SlurmBackend:
        assert isinstance(self.yard, NodeYard)
        return SlurmBackend(self.yard, self.jobs.__getitem__, lambda: CLUSTER)

    def living(self, job: str) -> int:
        """Those put down by the nodes of its attempts."""
        papers = (json.loads(path.read_text()) for path in self._attempts(job, "*/nodes/*/state.json"))
        tasks = [task for paper in papers for task in paper["tasks"]]
        return sum(1 for task in tasks if self._is_there(task["pid"], task["began"]))

    def keeper(self, job: str) -> int:
        return int(json.loads(next(self._attempts(job, "*/nodes/*/state.json")).read_text())["pid"])

    def sabotage(self, job: str, rank: int) -> None:
        for node in CLUSTER.nodes:
            (self.data / "jobs" / job / "1" / "nodes" / node.name / f"{rank}.out").mkdir(parents=True)

    def printed(self, job: str, rank: int) -> int:
        return sum(path.stat().st_size for path in self._attempts(job, f"*/nodes/*/{rank}.out"))

    def _attempts(self, job: str, pattern: str) -> Iterator[Path]:
        return (self.data / "jobs" / job).glob(pattern)

    def close(self) -> None:
        if self._backend is not None:
            self._backend.close()
            last = self._made()
            last.adopt((), self.now())
            deadline_s = time.monotonic() + PATIENCE_S
            while any((self.data / "backend" / "live").iterdir()) and time.monotonic() < deadline_s:
                time.sleep(0.02)
            last.close()
            assert "phalanx:" not in shared_cluster().run("squeue", "-h", "-o", "%k"), "jobs were left in Slurm"
        shutil.rmtree(self.data)
