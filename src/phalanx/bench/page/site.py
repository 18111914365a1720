"""A server with as many simulated GPUs and jobs as the page is meant for; its jobs take their place and run nothing."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.bench.row import Tell
from phalanx.bench.server.live import API, LiveServer

GPUS_PER_NODE = 8
BATCH = 1_000
PATIENCE_S = 300.0
QUEUES = 12
SHORT_NODES = 2
"""Nodes of another GPU type, on which jobs that end at once find a place when all others are taken."""

OVERDUE = 10
"""So many jobs soon wait longer than they may: the list of what needs attention is full from the first minutes on."""

SIZES = (1, 1, 2, 4, 8, 8, 16, 32)
CLUSTER = """version: 1
name: bench
nodes:
  - {{count: {nodes}, gpus: 8, gpu_type: H100, cpus: 96, memory_gb: 1024, rack: {{nodes: 16}}, pod: {{nodes: 128}}}}
  - {{count: {short}, name: s, gpus: 8, gpu_type: A100, cpus: 96, memory_gb: 1024, rack: short, pod: short}}
policy: fifo:skip=true
"""


@dataclass(frozen=True, slots=True)
class Size:
    """GPUs of the cluster, jobs that are over, and jobs that run or are pending: what does not fit is pending."""

    gpus: int
    finished: int
    active: int

    @property
    def jobs(self) -> int:
        """All of them."""
        return self.finished + self.active


@contextmanager
def site(size: Size, tell: Tell) -> Iterator[LiveServer]:
    """A server that holds them all."""
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        cluster = Path(folder, "cluster.yaml")
        cluster.write_text(CLUSTER.format(nodes=size.gpus // GPUS_PER_NODE - SHORT_NODES, short=SHORT_NODES))
        data = Path(folder, "data")
        subprocess.run([sys.executable, "-m", "phalanx.server.figures.rehearsed", data, str(size.gpus)], check=True)
        server = LiveServer(data, "--backend", "rehearsal", "--cluster", str(cluster))
        server.start()
        try:
            tell(f"page: {size.gpus} GPUs, {size.jobs} jobs")
            server.add_queues(*(f"team-{number}" for number in range(QUEUES)))
            _fill(server, size)
            yield server
        finally:
            server.stop()


def _fill(server: LiveServer, size: Size) -> None:
    for first in range(0, size.finished, BATCH):
        submit(server, [short_job(number) for number in range(first, min(first + BATCH, size.finished))])
    _until(lambda: not _any(server, "waiting,starting,running,stopping"))
    for first in range(0, size.active, BATCH):
        submit(server, [_active_job(number, size) for number in range(first, min(first + BATCH, size.active))])
    _until(lambda: not _any(server, "starting"))


def short_job(number: int) -> dict[str, Any]:
    """A job that ends as soon as it starts."""
    return {"name": f"short-{number}", "gpus": 1, "duration": "1ms", "queue": f"team-{number % QUEUES}"}


def long_job(number: int) -> dict[str, Any]:
    """A job that outlasts the measurement."""
    gpus = SIZES[number % len(SIZES)]
    task = {"gpus": min(gpus, GPUS_PER_NODE), "gpu_type": "H100"}
    job = {"name": f"long-{number}-", "duration": "100h", "queue": f"team-{number % QUEUES}"}
    return {**job, "gang": [{"replicas": gpus // GPUS_PER_NODE, **task}]} if gpus > GPUS_PER_NODE else {**job, **task}


def _active_job(number: int, size: Size) -> dict[str, Any]:
    """The last of them are pending, as there are more than fit."""
    job = long_job(number)
    return {**job, "max_wait": "1m"} if number >= size.active - OVERDUE else job


def submit(server: LiveServer, jobs: list[dict[str, Any]]) -> list[str]:
    """Submits jobs in one request; their ids."""
    status, body = server.ask("POST", f"{API}/jobs:batch", {"jobs": [{"command": "true", **job} for job in jobs]})
    if status != 201:
        raise RuntimeError(f"a batch was refused: {body}")
    return list(body["ids"])


def _any(server: LiveServer, states: str) -> bool:
    return bool(server.ask("GET", f"{API}/jobs?limit=1&state={states}")[1]["items"])


def _until(reached: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not reached():
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"the jobs did not start within {PATIENCE_S:g} s; see the log folder of the server")
        time.sleep(0.1)
