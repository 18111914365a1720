"""The page of rules: its table is what the simulator gives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phalanx.cluster.cluster import flat
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.world.costs import NO_COSTS
from reference.tiresias import RefJob, simulate

PAGE = (Path(__file__).parents[2] / "docs/reference/simulator-rules.md").read_text("utf-8")
JOBS = re.findall(r"^\| ([A-F]) \| ([\d,]+) s \| ([\d,]+) s \| (\d) \|$", PAGE, re.MULTILINE)
TOLD = re.findall(r"^\| `([^`]+)` \| ([\d, ]+) \| (\d+\.\d) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_the_page_has_a_trace_and_a_row_for_each_rule() -> None:
    assert [job for job, *_ in JOBS] == ["A", "B", "C", "D", "E", "F"]
    assert len(TOLD) == 7


@pytest.mark.parametrize("told", TOLD, ids=[policy for policy, *_ in TOLD])
def test_a_row_is_what_the_simulator_gives(told: tuple[str, str, str, str, str]) -> None:
    policy, ends, mean_jct, makespan, preemptions = told
    jobs = [TraceJob(job, 1000 * number(at), 1000 * number(long), int(gpus)) for job, at, long, gpus in JOBS]
    simulation = Simulation(Setup(flat(1, 4), Trace("rules", tuple(jobs)), policy, "count", NO_COSTS))
    simulation.begin()
    simulation.go()
    records = [simulation.run.state.jobs[job.id] for job in jobs]
    assert [(record.ended_ms or 0) // 1000 for record in records] == [int(end) for end in ends.split(", ")]
    jct_ms = [(record.ended_ms or 0) - record.submitted_ms for record in records]
    assert f"{sum(jct_ms) / len(jct_ms) / 1000:.1f}" == mean_jct
    assert max(record.ended_ms or 0 for record in records) // 1000 == int(makespan)
    assert sum(record.preemptions for record in records) == int(preemptions)


THEIRS = {
    "fifo": "fifo",
    "fifo:skip=true": "fjf",
    "srtf:by=gpus": "sjf",
    "srtf:by=time": "shortest",
    "srtf:by=gpu_time": "shortest-gpu",
    "tiresias-las:dims=1": "dlas",
    "tiresias-las": "dlas-gpu",
}


@pytest.mark.parametrize("told", TOLD, ids=[policy for policy, *_ in TOLD])
def test_a_row_is_what_the_reference_gives(told: tuple[str, str, str, str, str]) -> None:
    policy, ends, mean_jct, makespan, preemptions = told
    jobs = [RefJob(job, 1000 * number(at), 1000 * number(long), int(gpus)) for job, at, long, gpus in JOBS]
    result = simulate(jobs, 4, THEIRS[policy], tick=1000)
    assert [result.end[job.id] // 1000 for job in jobs] == [int(end) for end in ends.split(", ")]
    assert f"{float(result.mean_jct) / 1000:.1f}" == mean_jct
    assert result.makespan == 1000 * int(makespan)
    assert sum(result.preemptions.values()) == int(preemptions)
