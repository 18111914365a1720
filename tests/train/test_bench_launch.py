"""The benchmark of the launcher, at its smallest: that it runs, and that what must hold at any size does."""

from __future__ import annotations

import sys

import pytest

from phalanx.bench.launch import detection, faults, recovery, resize, storm, warm
from phalanx.bench.launch.faults import KINDS, fault_of

pytestmark = pytest.mark.needs("torch")


@pytest.fixture
def warm_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """What starts agents and ranks has imported torch: no more is shown by each of them importing it."""
    monkeypatch.setattr(sys, "executable", warm.python())


def silent(line: str) -> None:
    pass


@pytest.mark.long
@pytest.mark.usefixtures("warm_python")
def test_faults_are_noticed_and_named_and_slow_ranks_left_alone() -> None:
    rows = {row["name"]: row for row in detection.run(detection.QUICK, silent)}
    assert rows["launch: right rank and cause named"]["value"] == detection.QUICK.faults
    assert rows["launch: exit code of the run with all these faults"]["value"] == 0
    assert rows[f"launch: false kills of a slow rank in {detection.QUICK.slow_steps} steps"]["met"]


@pytest.mark.long
@pytest.mark.usefixtures("warm_python")
def test_all_ways_of_recovery_come_back() -> None:
    rows = recovery.run(recovery.QUICK, silent)
    assert len(rows) == 8
    assert all(row["value"] is not None and row["value"] > 0 for row in rows)


@pytest.mark.long
@pytest.mark.usefixtures("warm_python")
def test_all_ways_of_resizing_reach_each_size() -> None:
    rows = resize.run(resize.QUICK, silent)
    assert len(rows) == 3 * 2 * (len(resize.QUICK.sizes) - 1)
    assert all(row["value"] is not None and row["value"] > 0 for row in rows)


@pytest.mark.long
@pytest.mark.needs("namespaces")
@pytest.mark.usefixtures("warm_python")
def test_a_storm_loses_no_step_and_no_sample() -> None:
    rows = storm.run(storm.QUICK, silent)
    assert all(row["met"] for row in rows if row["target"] is not None), rows


def test_many_epochs_have_faults_of_every_kind_and_rank() -> None:
    drawn = [fault_of(epoch, 2) for epoch in range(1, detection.FULL.faults + 1)]
    assert {fault.kind for fault in drawn} == set(KINDS)
    assert {fault.rank for fault in drawn} == {0, 1}


@pytest.mark.parametrize(
    ("kind", "error"),
    [("exception", RuntimeError), ("memory", MemoryError), ("device", RuntimeError), ("program", KeyError)],
)
def test_what_is_raised_is_what_the_launcher_is_to_say(kind: str, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        faults.fail(kind)
    assert f"{type(raised.value).__name__}: {raised.value}".endswith(KINDS[kind][1])
