"""The runs behind a curve: each number of nodes, policy and seed is run once, whoever asks for it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from phalanx.capacity.point import HOURS_MONTH, Point, Sample
from phalanx.capacity.target import Figure
from phalanx.cluster.cluster import Cluster
from phalanx.engine.state.records import JobState
from phalanx.simulate.figures.result import Result
from phalanx.simulate.studies.batch import run_cases
from phalanx.simulate.studies.nodes import with_nodes
from phalanx.simulate.studies.study import Case, Study

Tell = Callable[[int, str], None]


@dataclass(slots=True)
class Runs:
    """Runs of a study under one policy. `never` are jobs that no number of nodes could start, with their GPUs.

    `price_usd_h` is what an hour of a GPU costs on nodes of which the cluster file says nothing.
    """

    study: Study
    policy: str
    spec: str
    figures: tuple[Figure, ...]
    workers: int | None = None
    price_usd_h: float = 0.0
    tell: Tell | None = None
    never: dict[str, int] = field(default_factory=dict)
    count: int = 0
    _samples: dict[tuple[int, int], Sample] = field(default_factory=dict)

    def points(self, nodes: Sequence[int], seeds: Sequence[int]) -> list[Point]:
        """A point for each number of nodes; what has not been run is."""
        missing = [
            Case(self.policy, self.spec, seed, self.study.load, count)
            for count in dict.fromkeys(nodes)
            for seed in seeds
            if (count, seed) not in self._samples
        ]
        if missing:
            self._run(missing)
        return [self._point(count, seeds) for count in nodes]

    def leave_out(self, nodes: int, seed: int) -> None:
        """Leaves out of all figures what does not even start with so many nodes, which are more than enough."""
        case = Case(self.policy, self.spec, seed, self.study.load, nodes)
        with closing(run_cases(self.study, [case], 1)) as runs:
            for _, result in runs:
                self.never = {
                    job.job_id: job.gpus for job in result.jobs if job.start_s is None and job.state == JobState.WAITING
                }
                self._keep(case, result)

    def _run(self, cases: Sequence[Case]) -> None:
        with closing(run_cases(self.study, cases, self.workers)) as runs:
            for number, result in runs:
                self._keep(cases[number], result)

    def _keep(self, case: Case, result: Result) -> None:
        self.count += 1
        held_gpu_s = sum(use.gpu_s for use in result.nodes.values())
        jobs = result.jobs if self.study.window is None else self.study.window.jobs(result.jobs)[1]
        values = tuple(figure.of(jobs, self.never) for figure in self.figures)
        sample = Sample(values, result.summary["gpu_allocated"] or 0.0, held_gpu_s / 3600)
        self._samples[case.nodes or 0, case.seed] = sample
        if self.tell is not None:
            self.tell(self.count, f"{case.nodes} nodes, seed {case.seed}")

    def _point(self, nodes: int, seeds: Sequence[int]) -> Point:
        cluster = with_nodes(self.study.cluster, nodes, self.study.like)
        samples = tuple(self._samples[nodes, seed] for seed in seeds)
        return Point(self.policy, nodes, cluster.gpus, usd_month(cluster, self.price_usd_h), samples)


def usd_month(cluster: Cluster, price_usd_h: float = 0.0) -> float:
    """What a cluster costs in a month: nodes with a price by it, others by that of a GPU."""
    return HOURS_MONTH * sum(node.price_usd_h or node.gpus * price_usd_h for node in cluster.nodes)
