"""Published results again: Tiresias beside the policies of its paper, on jobs of Philly's shape and 60 GPUs.

The paper's testbed has 15 nodes of 4 GPUs and 480 jobs (Gu et al., NSDI 2019, §5). Its trace is not public, so ours is
synthetic, from ten seeds; docs/results/tiresias.md says what is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.bench.row import Row, Tell, row
from phalanx.cluster.cluster import Cluster, flat
from phalanx.engine.records import JobState
from phalanx.simulate.confidence import interval
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace
from phalanx.simulate.traces.synthetic import Synthetic, synthesize

OURS = "tiresias-las"
OTHERS = ("fifo", "yarn-cs", "srtf", "tiresias-gittins")
PUBLISHED = {"yarn-cs": "up to 5.5 on the testbed", "srtf": "close to 1"}
HISTORY_SEED = 1_000


@dataclass(frozen=True, slots=True)
class Size:
    """How many jobs, from how many seeds."""

    jobs: int
    seeds: int


FULL = Size(jobs=480, seeds=10)
QUICK = Size(jobs=60, seeds=3)
LOAD = 3.0
"""Enough that jobs wait, as on the testbed: durations of Philly have so heavy a tail that less leaves most alone."""


def testbed() -> Cluster:
    """15 nodes of 4 GPUs."""
    return flat(15, 4)


def run(size: Size, tell: Tell) -> list[Row]:
    """Mean job completion times of others as multiples of Tiresias', with 95 % intervals over seeds."""
    ratios: dict[str, list[float]] = {policy: [] for policy in OTHERS}
    for seed in range(size.seeds):
        tell(f"published: seed {seed}")
        trace = synthesize(Synthetic(jobs=size.jobs, gpus=testbed().gpus, load=LOAD, queues=1), seed)
        ours = mean_jct_s(OURS, trace)
        for policy in OTHERS:
            ratios[policy].append(mean_jct_s(_with_history(policy, size), trace) / ours)
    rows: list[Row] = []
    for policy, values in ratios.items():
        found = interval(values)
        paper = f" (paper: {PUBLISHED[policy]})" if policy in PUBLISHED else ""
        rows.append(row(f"{policy} / {OURS}, mean JCT{paper}", found.mean, "ratio"))
        rows.append(row(f"{policy} / {OURS}, mean JCT: lower end of 95 %", found.low, "ratio"))
        rows.append(row(f"{policy} / {OURS}, mean JCT: upper end of 95 %", found.high, "ratio"))
    return rows


def mean_jct_s(policy: str, trace: Trace) -> float:
    """The mean job completion time over jobs that completed."""
    simulation = Simulation(Setup(testbed(), trace, policy))
    simulation.begin()
    simulation.go()
    completed = [record for record in simulation.run.state.jobs.values() if record.final is JobState.SUCCEEDED]
    return sum((record.ended_ms or 0) - record.submitted_ms for record in completed) / len(completed) / 1000


def _with_history(policy: str, size: Size) -> str:
    """The Gittins index needs the services of past jobs: those of another seed."""
    if policy != "tiresias-gittins":
        return policy
    past = synthesize(Synthetic(jobs=size.jobs, gpus=testbed().gpus, load=LOAD, queues=1), HISTORY_SEED)
    samples = sorted(job.gpus * job.duration_ms // 1000 for job in past.jobs)
    return f"{policy}:samples={'/'.join(map(str, samples))}"
