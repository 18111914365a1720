"""What the benchmark of engines reads out of a journal, on one whose delays are known."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from builders import a_job
from phalanx.bench.engines.likeness import rows
from phalanx.bench.engines.measured import durations_of, kendall_tau, start_delays_ms, starts_ms, stop_delays_ms
from phalanx.bench.engines.mix import MixJob, mix
from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.state.journal import Journal
from phalanx.protocol.event import JobSubmitted
from phalanx.simulate.run import Run
from phalanx.simulate.world.costs import NO_COSTS
from phalanx.simulate.world.virtual import VirtualBackend
from phalanx.simulate.world.work import Work

START_MS, STOP_MS = 300, 200
JOBS = (MixJob("long", 1, 4, 5.0, 0.0), MixJob("short", 1, 2, 1.0, 0.1), MixJob("wide", 2, 4, 2.0, 0.1))


@pytest.fixture
def journal() -> Journal:
    """Two nodes of four GPUs. Starts and ends take as long as is said above."""
    submitted = [replace(a_job(str(number), job.gpus, job.tasks), name=job.name) for number, job in enumerate(JOBS)]
    works = {job.id: Work(round(1000 * of.duration_s) + STOP_MS) for job, of in zip(submitted, JOBS, strict=True)}
    backend = VirtualBackend(works, replace(NO_COSTS, start_ms=START_MS))
    cluster = Cluster((Node("n0", gpus=4), Node("n1", gpus=4)))
    run = Run.of(cluster, "priority", backend, [(100 * i, JobSubmitted(job)) for i, job in enumerate(submitted)])
    run.finish()
    return run.journal


def test_the_mix_of_a_seed_is_always_the_same_and_fits_the_cluster() -> None:
    assert mix(20, 1) == mix(20, 1)
    assert mix(20, 1) != mix(20, 2)
    assert {job.tasks * job.gpus for job in mix(200, 1)} == {1, 2, 4, 8}


def test_delays_are_those_of_the_engine(journal: Journal) -> None:
    durations_ms = durations_of(journal, JOBS)
    assert durations_ms == {"0": 5000, "1": 1000, "2": 2000}
    assert start_delays_ms(journal, durations_ms) == [START_MS] * 3
    assert fmean(stop_delays_ms(journal, durations_ms)) == STOP_MS
    assert starts_ms(journal, durations_ms)["2"] == START_MS + 5000 + STOP_MS


def test_a_run_without_chance_is_simulated_as_it_was(journal: Journal) -> None:
    told = {row["name"].partition(": ")[2]: row for row in rows("rig", journal, JOBS)}
    assert told["mean JCT, simulated beside live, off by"]["value"] == 0
    assert all(row["met"] is not False for row in told.values())


@pytest.mark.parametrize(
    ("other", "tau"),
    [({"a": 1, "b": 2, "c": 3}, 1.0), ({"a": 3, "b": 2, "c": 1}, -1.0), ({"a": 1, "b": 3, "c": 2}, 1 / 3)],
)
def test_kendalls_tau_by_hand(other: dict[str, int], tau: float) -> None:
    assert kendall_tau({"a": 1, "b": 2, "c": 3}, other) == pytest.approx(tau)
