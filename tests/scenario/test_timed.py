"""Timed scenarios: jobs that run in virtual time and when they must have ended, one YAML file each in `timed`.

    cluster: {nodes: 1, gpus: 1, gpu_memory_gb: 80, memory_gb: 100}
    policy: gandiva
    fails_with: ["gandiva:switch=now"]    # under these policies they must end at other times
    jobs:                                 # gpus: (1), submit_s: (0), queue:, priority:, model:, and of its steps
      a: {duration_s: 600, gpu_memory_gb: 40, gpu_memory_low_gb: 1, step_s: 7}
    ends_s: {a: 1300.5}                   # worked by hand in the comment, right to a tenth of a second

Starting and stopping cost nothing, so that what is seen is what the policy does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from phalanx.cluster.capacity import MB_PER_GB
from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.state.journal import Journal
from phalanx.engine.turn import verify
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.costs import NO_COSTS

TABLES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(Path(__file__).parent.glob("timed/*.yaml"))}
OTHERS = [(name, other) for name, table in TABLES.items() for other in table["fails_with"]]
KEYS = ["cluster", "policy", "fails_with", "jobs", "ends_s"]
PRECISION_S = 0.1


@pytest.mark.parametrize("name", TABLES)
def test_jobs_end_when_the_table_says(name: str) -> None:
    assert list(TABLES[name]) == KEYS
    assert ends_s(name, TABLES[name]["policy"]) == pytest.approx(TABLES[name]["ends_s"], abs=PRECISION_S)


@pytest.mark.parametrize(("name", "other"), OTHERS, ids=[f"{name}-{other}" for name, other in OTHERS])
def test_jobs_end_at_other_times_without_what_makes_the_policy(name: str, other: str) -> None:
    assert ends_s(name, other) != pytest.approx(TABLES[name]["ends_s"], abs=PRECISION_S)


def ends_s(name: str, policy: str) -> dict[str, float]:
    table = TABLES[name]
    jobs = sorted((a_job(job, dict(fields)) for job, fields in table["jobs"].items()), key=lambda job: job.submit_ms)
    journal = Journal()
    setup = Setup(cluster(table["cluster"]), Trace(name, tuple(jobs)), policy, costs=NO_COSTS)
    simulation = Simulation(setup, journal)
    simulation.begin()
    simulation.go()
    verify(Journal.read(list(journal.lines())))
    return {job: (simulation.run.state.jobs[job].ended_ms or 0) / 1000 for job in table["ends_s"]}


def cluster(table: dict[str, Any]) -> Cluster:
    gpu_memory_gb, memory_mb = float(table.get("gpu_memory_gb", 0)), table.get("memory_gb", 0) * MB_PER_GB
    nodes = (Node(f"n{i}", (), table["gpus"], "", gpu_memory_gb, memory_mb=memory_mb) for i in range(table["nodes"]))
    return Cluster(tuple(nodes))


def a_job(name: str, fields: dict[str, Any]) -> TraceJob:
    for key in ("submit", "duration", "step"):
        fields[f"{key}_ms"] = int(1000 * fields.pop(f"{key}_s", 0))
    for key in ("gpu_memory", "gpu_memory_low"):
        fields[f"{key}_mb"] = int(MB_PER_GB * fields.pop(f"{key}_gb", 0))
    return TraceJob(name, **{"gpus": 1, **fields})
