"""Preemption comes to an end: however queues, quotas and the order of a policy work against one another."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from builders import a_job, virtual_backend
from phalanx.cluster.cluster import Cluster, flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.protocol.event import JobSubmitted
from phalanx.simulate.run import Run
from phalanx.workload.job import Job

POLICIES = ("phalanx", "priority", "fair:preempt=true", "kai", "volcano", "las", "srtf", "edf:preempt=true")
TURNS_MAX = 60
"""Decisions at one moment, at which what was asked for in the last is done at once."""

CYCLES = (192, 299, 631)
"""Crowds in which jobs stopped one another for ever, some by the order of their queue and some by its quota."""


@pytest.mark.parametrize("seed", [*CYCLES, *range(12)])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_crowd_in_queues_with_quotas_stops_preempting_and_ends(policy: str, seed: int) -> None:
    rng = Random(seed)
    cluster, leaves = a_cluster(rng)
    lasts_ms: dict[str, int] = {}
    arrivals = sorted(
        (a_moment_and_job(rng, cluster, leaves, i, lasts_ms) for i in range(rng.randint(6, 20))), key=first
    )
    run = Run.of(cluster, policy, virtual_backend(lasts_ms), [(at_ms, JobSubmitted(job)) for at_ms, job in arrivals])
    turns, now = 0, -1
    while run.step() is not None:
        turns, now = (turns + 1 if run.state.now == now else 0), run.state.now
        assert turns < TURNS_MAX, f"at {now} ms decisions go on and on"
    assert all(record.final is not None for record in run.state.jobs.values())


def first(arrival: tuple[int, Job]) -> int:
    return arrival[0]


def a_cluster(rng: Random) -> tuple[Cluster, list[str]]:
    """Few GPUs, most of them deserved by one queue or another, some guaranteed."""
    nodes, gpus = rng.choice([1, 2, 3]), rng.choice([2, 4])
    tops = [f"t{i}" for i in range(rng.randint(2, 3))]
    leaves = [f"{top}/u{i}" for top in tops for i in range(rng.randint(1, 2))]
    each = 1000 * nodes * gpus // len(leaves)
    queues = [Queue(top) for top in tops]
    for leaf in leaves:
        deserved = rng.choice([0, each, each])
        queues.append(Queue(leaf, Quota(rng.choice([0, deserved // 2])), Quota(deserved), Quota()))
    return replace(flat(nodes, gpus), queues=tuple(queues)), leaves


def a_moment_and_job(
    rng: Random, cluster: Cluster, leaves: list[str], number: int, lasts_ms: dict[str, int]
) -> tuple[int, Job]:
    """When a job comes, and the job; how long it lasts is noted, and often something else is said of it."""
    length_ms = rng.choice([1000, 5000, 20000, 60000, rng.randrange(1000, 100000)])
    gpus = rng.choice([1, 1, 2, cluster.nodes[0].gpus])
    tasks = rng.choice([1, 1, 1, 2]) if gpus * 2 <= cluster.gpus else 1
    queue, priority = rng.choice(leaves), rng.choice([0, 0, 100, 300])
    says_ms = rng.choice([length_ms, length_ms, int(length_ms * 1.3), int(length_ms * 0.7), None])
    job = a_job(f"j{number}", gpus, tasks, queue=queue, priority=priority, duration_ms=says_ms)
    lasts_ms[job.id] = length_ms
    return rng.choice([0, 0, rng.randrange(0, 60000)]), job
