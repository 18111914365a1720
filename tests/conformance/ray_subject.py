"""The Ray backend as a subject: jobs on a real Ray of two nodes that all cases share, each with a folder of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from hosted import CLUSTER, HostedBackend
from programs import Program
from subject import LocalSubject

from phalanx.backends.capability import Offer
from phalanx.backends.local.backend import LocalBackend
from phalanx.backends.local.host.processes import Process, processes, variable
from phalanx.backends.ray.backend import RayBackend
from phalanx.backends.ray.node.member import scratch_folder
from phalanx.backends.ray.offer import ray_offer
from phalanx.backends.ray.yard import RayYard
from ray_cluster import shared_driver, shared_site


@cache
def node_ids(address: str) -> tuple[str, ...]:
    """What Ray calls its nodes."""
    program = "import ray, sys; ray.init(sys.argv[1]); print(*(node['NodeID'] for node in ray.nodes()))"
    told = subprocess.run([sys.executable, "-c", program, address], capture_output=True, text=True, check=True).stdout
    return tuple(told.split())


def ray_yard(data: Path) -> RayYard:
    """Where a backend works. The process that talks to Ray is shared: it takes a second to start."""
    ray = shared_site()
    return RayYard(data, address=ray.address, driver=shared_driver(), site=data.name, cluster=lambda: CLUSTER)


class RaySubject(LocalSubject):
    """Processes on the nodes of Ray, which are all on this machine."""

    programs = frozenset(Program)
    slowness = 4
    """So many times fewer kills: each backend takes a while to find the driver, and each start to reach a node."""

    def _make_yard(self) -> RayYard:
        return ray_yard(self.data)

    def _look_around(self) -> Offer:
        return ray_offer()

    def _open_here(self) -> LocalBackend:
        return RayBackend(self.yard, self.jobs.__getitem__)

    def _open_apart(self) -> HostedBackend:
        return HostedBackend(self.data, self.jobs, shared_site().address, str(shared_driver()))

    def living(self, job: str) -> int:
        """Those put down in the folders of its members on the nodes."""
        papers = (_read(path) for path in self._on_nodes(job, "*/state.json"))
        tasks = [task for paper in papers for task in paper["tasks"]]
        return sum(1 for task in tasks if self._is_there(task["pid"], task["began"]))

    def _on_nodes(self, job: str, rest: str) -> list[Path]:
        return list(Path(scratch_folder()).glob(f"*/{self.data.name}/{job}/{rest}"))

    def processes(self, job: str) -> list[Process]:
        """All processes of a job, whoever their parents are."""
        part = f"/{self.data.name}/{job}/"
        return [
            each
            for each in processes()
            if each.state != "Z" and part in (variable(each.pid, "PHALANX_NOTICE_FILE") or "")
        ]

    def sabotage(self, job: str, rank: int) -> None:
        for node in node_ids(shared_site().address):
            (Path(scratch_folder()) / node[:12] / self.data.name / job / "1" / f"{rank}.out").mkdir(parents=True)

    def _clear(self) -> None:
        # The process that talks to Ray may just be letting go of an attempt.
        for folder in (self.data, *Path(scratch_folder()).glob(f"*/{self.data.name}")):
            shutil.rmtree(folder, ignore_errors=True)


def _read(path: Path) -> dict[str, Any]:
    """What is put down there; of an attempt whose folder was removed just now, that nothing runs."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {"tasks": []}
    return found
