"""Published results again: Tiresias beside the policies of its paper, on jobs of Philly's shape and 60 GPUs.

The paper's testbed has 15 nodes of 4 GPUs and 480 jobs (Gu et al., NSDI 2019, §5). Its trace is not public, so ours is
synthetic, from ten seeds; it is written in the files of the authors' simulator and read back from them, as a user's own
would be. docs/results/tiresias.md says what is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from phalanx.bench.row import Row, Tell, row
from phalanx.cluster.cluster import Cluster
from phalanx.engine.state.records import JobState
from phalanx.simulate.figures.confidence import interval
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace
from phalanx.simulate.traces.formats.tiresias import write_cluster, write_jobs
from phalanx.simulate.traces.open import read_trace, read_trace_cluster
from phalanx.simulate.traces.synthetic import Synthetic, synthesize

OURS = "tiresias-las"
OTHERS = ("fifo", "yarn-cs", "srtf", "tiresias-gittins")
PUBLISHED = {"yarn-cs": "up to 5.5", "srtf": "comparable"}
TESTBED = (1, 15, 4, 128, 256)
"""Switches, nodes of each, and what a node has: GPUs, CPUs, memory in GB."""
GPUS = 60
QUEUES = 8
"""Capacity queues: with one alone a scheduler of capacities has nothing to share out."""
HISTORY_SEED = 1_000


@dataclass(frozen=True, slots=True)
class Size:
    """How many jobs, from how many seeds."""

    jobs: int
    seeds: int


FULL = Size(jobs=480, seeds=10)
QUICK = Size(jobs=60, seeds=3)
LOADS = (3, 10)
"""GPU time asked for over that of the GPUs while jobs are submitted: with durations of Philly's shape, of which the few
longest make up most, 3 leaves most jobs alone under `yarn-cs`, and at 10 about half of them wait.
"""


def run(size: Size, tell: Tell) -> list[Row]:
    """Mean job completion times of others as multiples of Tiresias', with 95 % intervals over seeds."""
    return [each for load in LOADS for each in at_load(load, size, tell)]


def at_load(load: int, size: Size, tell: Tell) -> list[Row]:
    ratios: dict[str, list[float]] = {policy: [] for policy in OTHERS}
    with TemporaryDirectory() as folder:
        for seed in range(size.seeds):
            tell(f"published: load {load}, seed {seed}")
            cluster, trace = by_way_of_files(Path(folder), _drawn(size, load, seed))
            ours = mean_jct_s(OURS, cluster, trace)
            for policy in OTHERS:
                chosen = _with_history(policy, _drawn(size, load, HISTORY_SEED))
                ratios[policy].append(mean_jct_s(chosen, cluster, trace) / ours)
    rows: list[Row] = []
    for policy, values in ratios.items():
        found = interval(values)
        paper = f" (paper: {PUBLISHED[policy]})" if policy in PUBLISHED else ""
        name = f"load {load}: {policy} / {OURS}, mean JCT"
        rows.append(row(f"{name}{paper}", found.mean, "ratio"))
        rows.append(row(f"{name}: lower end of 95 %", found.low, "ratio"))
        rows.append(row(f"{name}: upper end of 95 %", found.high, "ratio"))
    return rows


def by_way_of_files(folder: Path, drawn: Trace) -> tuple[Cluster, Trace]:
    """The testbed and these jobs, as they are read from files of the authors' simulator."""
    cluster, jobs = str(folder / "n15g4.csv"), str(folder / f"{len(drawn.jobs)}_job.csv")
    write_cluster(cluster, *TESTBED)
    write_jobs(drawn.jobs, jobs)
    return read_trace_cluster(cluster), read_trace(jobs)


def _drawn(size: Size, load: int, seed: int) -> Trace:
    return synthesize(Synthetic(jobs=size.jobs, gpus=GPUS, load=load, queues=QUEUES), seed)


def mean_jct_s(policy: str, cluster: Cluster, trace: Trace) -> float:
    """The mean job completion time over jobs that completed."""
    simulation = Simulation(Setup(cluster, trace, policy))
    simulation.begin()
    simulation.go()
    completed = [record for record in simulation.run.state.jobs.values() if record.final is JobState.SUCCEEDED]
    return sum((record.ended_ms or 0) - record.submitted_ms for record in completed) / len(completed) / 1000


def _with_history(policy: str, past: Trace) -> str:
    """The Gittins index needs the services of past jobs: those of another seed."""
    if policy != "tiresias-gittins":
        return policy
    samples = sorted(job.gpus * job.duration_ms // 1000 for job in past.jobs)
    return f"{policy}:samples={'/'.join(map(str, samples))}"
