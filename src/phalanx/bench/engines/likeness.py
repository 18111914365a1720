"""The mix live on an engine, and the same mix in virtual time with the delays of that engine."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

from phalanx.bench.engines.kubernetes_site import Kubernetes
from phalanx.bench.engines.measured import (
    durations_of,
    kendall_tau,
    mean_jct_s,
    simulate,
    start_delays_ms,
    starts_ms,
    stop_delays_ms,
)
from phalanx.bench.engines.mix import GPUS, NODES, MixJob, mix
from phalanx.bench.engines.ray_site import Ray
from phalanx.bench.engines.slurm_site import Slurm, need_slurm
from phalanx.bench.row import Row, Tell, row
from phalanx.bench.server.live import API, LiveServer
from phalanx.engine.state.journal import Journal
from phalanx.engine.turn import replay, verify

SEED = 27
JCT_TARGET, TAU_TARGET = 0.05, 0.95
SETTLE_S = 900.0
WARM_UP = (MixJob("warm-up", NODES, GPUS, 1.0, 0.0),)
"""A gang on every node: what an engine begins on a node once, with the first task there, is no delay of the others."""

POLICY = "priority:backfill=easy"


def run(engine: str, count: int, tell: Tell) -> list[Row]:
    """Runs so many jobs on an engine, and compares."""
    jobs = mix(count, SEED)
    tell(f"mix: {count} jobs on {engine}")
    journal = live_journal(engine, jobs, tell)
    tell("mix: decided again, and simulated")
    return rows(engine, journal, jobs)


def rows(engine: str, journal: Journal, jobs: tuple[MixJob, ...]) -> list[Row]:
    """What a run came to, beside the simulator."""
    durations_ms = durations_of(journal, jobs)
    live, simulated = replay(journal), simulate(journal, durations_ms)
    live_s, simulated_s = mean_jct_s(live, durations_ms), mean_jct_s(simulated.state, durations_ms)
    tau = kendall_tau(starts_ms(journal, durations_ms), starts_ms(simulated.journal, durations_ms))
    succeeded = sum(live.jobs[job].state.value == "succeeded" for job in durations_ms)
    return [
        row(f"{engine}: jobs that did not succeed, of {len(jobs)}", len(jobs) - succeeded, "jobs", 0),
        row(f"{engine}: mean delay of a start", fmean(start_delays_ms(journal, durations_ms)) / 1000, "s"),
        row(f"{engine}: mean delay of an end", fmean(stop_delays_ms(journal, durations_ms)) / 1000, "s"),
        row(f"{engine}: mean JCT, live", live_s, "s"),
        row(f"{engine}: mean JCT, simulated with those two delays", simulated_s, "s"),
        row(f"{engine}: mean JCT, simulated beside live, off by", abs(simulated_s / live_s - 1), "share", JCT_TARGET),
        row(f"{engine}: 1 - Kendall's tau of the start order", 1 - tau, "", 1 - TAU_TARGET),
        row(f"{engine}: replays of the live journal that differ", _differing(journal), "replays", 0),
    ]


def _differing(journal: Journal) -> int:
    """The journal is folded again, and decided again at every decision: both must come to the State of the server."""
    try:
        return int(verify(journal).fingerprint() != replay(journal).fingerprint())
    except ValueError:
        return 1


def live_journal(engine: str, jobs: tuple[MixJob, ...], tell: Tell) -> Journal:
    """The journal of a server that has run all jobs."""
    with tempfile.TemporaryDirectory(prefix=f"phalanx-mix-{engine}-") as name:
        folder = Path(name)
        with site(engine, folder / "site", tell) as (options, environment):
            server = LiveServer(folder / "data", *options, "--policy", POLICY, environment=environment)
            server.start()
            try:
                _submit(server, WARM_UP)
                _submit(server, jobs)
                return server.journal()
            finally:
                server.stop()


@contextmanager
def site(engine: str, folder: Path, tell: Tell) -> Iterator[tuple[list[str], Mapping[str, str]]]:
    """An engine of one's own with so many nodes and GPUs: options for `up`, and the environment that it needs."""
    if engine == "local":
        yield ["--backend", "local", "--nodes", str(NODES), "--gpus", str(GPUS), "--simulate"], os.environ
        return
    made = _engine_of_ones_own(engine, folder, tell)
    try:
        made.start()
        yield ["--backend", engine], made.environment
    finally:
        made.stop()


def _engine_of_ones_own(engine: str, folder: Path, tell: Tell) -> Slurm | Ray | Kubernetes:
    if engine == "kubernetes":
        return Kubernetes(folder, NODES, GPUS)
    if engine == "ray":
        return Ray(NODES, GPUS)
    need_slurm(tell)
    return Slurm(folder, NODES, GPUS)


def _submit(server: LiveServer, jobs: tuple[MixJob, ...]) -> None:
    due_s = time.monotonic()
    for job in jobs:
        due_s += job.after_s
        time.sleep(max(due_s - time.monotonic(), 0.0))
        status, body = server.ask("POST", f"{API}/jobs", job.body)
        if status != 201:
            raise RuntimeError(f"a job was refused: {body}")
    deadline_s = time.monotonic() + SETTLE_S
    while server.ask("GET", f"{API}/jobs?limit=1&state=waiting,starting,running,stopping")[1]["items"]:
        if time.monotonic() > deadline_s:
            raise RuntimeError("the jobs did not end in time")
        time.sleep(0.5)
