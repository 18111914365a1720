"""Live beside simulated: a run of real jobs is decided again from its journal, and simulated from what was measured."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from phalanx.bench.row import Row, Tell, row
from phalanx.bench.server.live import API, LiveServer
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.state import State
from phalanx.engine.turn import replay, verify
from phalanx.protocol.action import ActionId, Start
from phalanx.protocol.event import AttemptEnded, ClusterDefined, Done, Event, JobSubmitted
from phalanx.protocol.plan import Plan
from phalanx.simulate.run import Run
from phalanx.simulate.world.costs import NO_COSTS
from phalanx.simulate.world.virtual import VirtualBackend
from phalanx.simulate.world.work import Work

SEED = 11
DIFFERENCE_TARGET = 0.05
SHAPES = (1, 1, 1, 2, 4, 8)
DURATIONS_S = (0.2, 1.5)
BETWEEN_S = 0.03
SETTLE_S = 300.0


def run(jobs: int, tell: Tell) -> list[Row]:
    """Runs so many jobs on this machine, and compares."""
    with tempfile.TemporaryDirectory(prefix="phalanx-likeness-") as folder:
        server = LiveServer(Path(folder), "--backend", "local", "--nodes", "4", "--gpus", "8")
        server.start()
        try:
            tell(f"likeness: {jobs} real jobs")
            _submit(server, jobs)
            journal = server.journal()
        finally:
            server.stop()
    tell("likeness: decided again, and simulated")
    live = replay(journal)
    same = _decides_the_same(journal)
    simulated = simulate(journal)
    live_s, simulated_s = mean_jct_s(live), mean_jct_s(simulated)
    return [
        row(f"plans of a live run of {jobs} jobs that differ when decided again", 0 if same else 1, "runs", 0),
        row("mean JCT, live", live_s, "s"),
        row("mean JCT, simulated from the same arrivals, durations and start delays", simulated_s, "s"),
        row("mean JCT, simulated beside live, off by", abs(simulated_s / live_s - 1), "share", DIFFERENCE_TARGET),
    ]


def _submit(server: LiveServer, jobs: int) -> None:
    chance = random.Random(SEED)
    for number in range(jobs):
        duration_s = round(chance.uniform(*DURATIONS_S), 2)
        job = {"name": f"job-{number}", "gpus": chance.choice(SHAPES), "command": ["sleep", str(duration_s)]}
        status, body = server.ask("POST", f"{API}/jobs", job)
        if status != 201:
            raise RuntimeError(f"a job was refused: {body}")
        time.sleep(BETWEEN_S)
    deadline_s = time.monotonic() + SETTLE_S
    while server.ask("GET", f"{API}/jobs?limit=1&state=waiting,starting,running,stopping")[1]["items"]:
        if time.monotonic() > deadline_s:
            raise RuntimeError("the jobs did not end in time")
        time.sleep(0.1)


def _decides_the_same(journal: Journal) -> bool:
    try:
        verify(journal)
    except ValueError:
        return False
    return True


def simulate(journal: Journal) -> State:
    """The run of a journal in virtual time: same arrivals, and every job starts and runs as long as it did.

    In virtual time all starts take equally long: the shortest. What a start took beyond that is added to its job.
    """
    delays = start_delays_ms(journal)
    shortest = min(delays.values(), default=0)
    works = {
        job: Work(duration_ms + delays.get(job, shortest) - shortest)
        for job, duration_ms in durations_ms(journal).items()
    }
    backend = VirtualBackend(works, replace(NO_COSTS, start_ms=shortest))
    first = journal.records[0].body
    assert isinstance(first, ClusterDefined)
    return Run.of(first.cluster, first.policy, backend, _arrivals(journal)).finish()


def _arrivals(journal: Journal) -> Iterator[tuple[int, Event]]:
    return ((entry.now, entry.body) for entry in journal.records if isinstance(entry.body, JobSubmitted))


def durations_ms(journal: Journal) -> dict[str, int]:
    """How long each job ran, from when all its tasks did to its end."""
    started: dict[str, int] = {}
    durations: dict[str, int] = {}
    for entry in journal.records:
        match entry.body:
            case Done(action=action):
                started.setdefault(action.job, entry.now)
            case AttemptEnded(job=job):
                durations[job] = entry.now - started.get(job, entry.now)
    return durations


def start_delays_ms(journal: Journal) -> dict[str, int]:
    """How long each job's start took, from its decision to the backend's answer."""
    asked: dict[ActionId, int] = {}
    delays: dict[str, int] = {}
    for entry in journal.records:
        match entry.body:
            case Plan(actions=actions):
                asked.update((action.id, entry.now) for action in actions if isinstance(action, Start))
            case Done(action=action) if action in asked:
                delays[action.job] = entry.now - asked.pop(action)
    return delays


def mean_jct_s(state: State) -> float:
    """The mean time from submission to end."""
    return fmean((each.ended_ms or 0) - each.submitted_ms for each in state.jobs.values()) / 1000
