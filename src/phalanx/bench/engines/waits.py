"""How long the mix waits on one Slurm: decided by phalanx, and by Slurm's own backfill, one after the other."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from phalanx.bench.engines.likeness import POLICY
from phalanx.bench.engines.mix import GPUS, NODES, MixJob, mix
from phalanx.bench.engines.slurm_site import Slurm, need_slurm
from phalanx.bench.row import Row, Tell, quantile, ratio, row
from phalanx.bench.server.live import API, LiveServer

SEEDS = (1, 2, 3)
LIMIT_MIN = 1
"""The time limit that both are told: a job runs for seconds."""

SETTLE_S = 900.0
Submit = Callable[[MixJob, str], None]


def run(count: int, seeds: tuple[int, ...], tell: Tell) -> list[Row]:
    """Waits of so many jobs, for each seed, both ways."""
    need_slurm(tell)
    with tempfile.TemporaryDirectory(prefix="phalanx-waits-") as name:
        folder = Path(name)
        slurm = Slurm(folder / "slurm", NODES, GPUS)
        try:
            slurm.start()
            return [each for seed in seeds for each in _of_seed(slurm, folder / str(seed), mix(count, seed), tell)]
        finally:
            slurm.stop()


def _of_seed(slurm: Slurm, folder: Path, jobs: tuple[MixJob, ...], tell: Tell) -> list[Row]:
    seed = folder.name
    tell(f"waits: seed {seed}, {len(jobs)} jobs by Slurm's backfill")
    theirs = _by_slurm(slurm.environment, folder / "slurm", jobs)
    tell(f"waits: seed {seed}, the same by phalanx")
    ours = _by_phalanx(slurm.environment, folder / "phalanx", jobs)
    return [
        *_rows(f"seed {seed}: phalanx on Slurm", ours),
        *_rows(f"seed {seed}: Slurm's own backfill", theirs),
        row(f"seed {seed}: mean wait, phalanx / Slurm", ratio(fmean(ours), fmean(theirs)), "times"),
    ]


def _rows(name: str, waits_s: list[float]) -> list[Row]:
    return [
        row(f"{name}, mean wait", fmean(waits_s), "s"),
        row(f"{name}, p95 of waits", quantile(waits_s, 0.95), "s"),
    ]


def _by_slurm(environment: Mapping[str, str], folder: Path, jobs: tuple[MixJob, ...]) -> list[float]:
    def submit(job: MixJob, command: str) -> None:
        size = [f"--nodes={job.tasks}", "--ntasks-per-node=1", f"--gres=gpu:{job.gpus}", f"--time={LIMIT_MIN}"]
        argv = ["sbatch", "--quiet", "--output=/dev/null", f"--job-name={job.name}", *size, f"--wrap={command}"]
        subprocess.run(argv, env=environment, check=True, capture_output=True)

    return _waits_s(folder, jobs, submit)


def _by_phalanx(environment: Mapping[str, str], folder: Path, jobs: tuple[MixJob, ...]) -> list[float]:
    server = LiveServer(folder / "data", "--backend", "slurm", "--policy", POLICY, environment=environment)
    folder.mkdir(parents=True)
    server.start()

    def submit(job: MixJob, command: str) -> None:
        body: dict[str, Any] = {**job.body, "command": ["sh", "-c", command], "max_run": f"{LIMIT_MIN}m"}
        status, told = server.ask("POST", f"{API}/jobs", body)
        if status != 201:
            raise RuntimeError(f"a job was refused: {told}")

    try:
        return _waits_s(folder, jobs, submit)
    finally:
        server.stop()


def _waits_s(folder: Path, jobs: tuple[MixJob, ...], submit: Submit) -> list[float]:
    """From the moment each job was submitted to that which it wrote down when it began: the same clock both ways."""
    notes = folder / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    # Jobs run as other users where the server is root.
    notes.chmod(0o777)
    submitted: dict[str, float] = {}
    due_s = time.monotonic()
    for job in jobs:
        due_s += job.after_s
        time.sleep(max(due_s - time.monotonic(), 0.0))
        submitted[job.name] = time.time()
        submit(job, _noting(notes / job.name, job.duration_s))
    _await(lambda: all((notes / f"{job.name}.end").exists() for job in jobs))
    return [float((notes / job.name).read_text()) - submitted[job.name] for job in jobs]


def _noting(path: Path, duration_s: float) -> str:
    """Notes when it began, sleeps, and notes that it is over. The first of several tasks counts."""
    return f"set -C; date +%s.%N 2>/dev/null > {path}; sleep {duration_s}; set +C; : > {path}.end"


def _await(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + SETTLE_S
    while not is_so():
        if time.monotonic() > deadline_s:
            raise RuntimeError("the jobs did not end in time")
        time.sleep(0.5)
