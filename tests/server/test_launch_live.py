"""Trainings under `phalanx launch` and a real server: killed, preempted and resized, they end as if undisturbed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Server
from trainings import CAN_TRAIN, STEPS, Trainings, training, training_server, undisturbed

from job_python import JOB_PYTHON

pytestmark = [
    pytest.mark.needs("torch"),
    pytest.mark.skipif(not CAN_TRAIN, reason="jobs cannot run the Python that has torch"),
]

LAUNCH = (JOB_PYTHON, "-m", "phalanx", "launch")
SLOW_S = 0.2
"""So long that a training is not over before something happens to it, on a slow machine either."""

SAVED = 20
"""The first step that a training saves by itself where it outlives an attempt."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with training_server(tmp_path_factory.mktemp("server") / "data") as started:
        yield started


@pytest.fixture
def trainings(server: Server) -> Iterator[Trainings]:
    trainings = Trainings(server)
    yield trainings
    trainings.clear()


def agent_of(server: Server, job: str, attempt: int, task: int) -> int:
    """The process of a task's launcher."""
    wanted = {f"PHALANX_JOB_ID={job}", f"PHALANX_ATTEMPT={attempt}", f"PHALANX_RANK={task}"}
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            variables = set((path / "environ").read_bytes().decode(errors="replace").split("\0"))
        except OSError:
            continue
        if "launch" in words and wanted <= variables and any(str(server.data) in each for each in variables):
            found.append(int(path.name))
    (pid,) = found
    return pid


def test_ranks_that_the_launcher_starts_again_find_their_memory(trainings: Trainings) -> None:
    command = training(0, *LAUNCH, "--nproc-per-node", "2", "--")
    job = trainings.submit(command, gpus=1, env={"TRAINING_DIES_AT": "25"})
    trainings.server.wait(job, "succeeded", "failed")
    told = trainings.logs(job, 1)
    assert sorted(re.findall(r"rank \d of 2 loaded step \d+ from \w+", told)) == [
        "rank 0 of 2 loaded step 20 from host",
        "rank 1 of 2 loaded step 20 from host",
    ], trainings.logs(job, 1, "err")
    assert set(re.findall(r"ends with (\w+)", told)) == {undisturbed()}


def test_a_launched_training_shrinks_and_grows_by_plan_within_one_attempt(trainings: Trainings) -> None:
    gang = [{"replicas": {"min": 1, "max": 2}, "gpus": 1}]
    job = trainings.submit(training(SLOW_S, *LAUNCH, "--"), gang=gang)
    trainings.await_log(job, 1, "did 10\n")
    other = trainings.preempt(gpus=3)
    trainings.await_log(job, 1, "rank 0 of 1 loaded step")
    trainings.cancel(other)
    trainings.await_log(job, 1, "rank 1 of 2 loaded step")
    trainings.hurry()
    trainings.server.wait(job, "succeeded", "failed")
    told = trainings.logs(job, 1, "err")
    assert set(re.findall(r"ends with (\w+)", trainings.logs(job, 1))) == {undisturbed()}, told
    assert re.findall(r"epoch (\d+): ranks 0 to 0 of (\d)", told) == [("1", "2"), ("2", "1"), ("3", "2")]


def test_a_launched_training_survives_a_dead_node_and_a_preemption_with_another_world(trainings: Trainings) -> None:
    command, gang = training(SLOW_S, *LAUNCH, "--"), [{"replicas": 2, "gpus": 1}]
    job = trainings.submit(command, gang=gang, retry={"limit": 2}, env={"TRAINING_SHARED_EVERY": str(SAVED)})
    trainings.await_saved(job)
    os.kill(agent_of(trainings.server, job, 1, task=1), signal.SIGKILL)

    trainings.await_log(job, 2, "rank 0 of 2 loaded step ")
    trainings.await_log(job, 2, "rank 1 of 2 loaded step ")
    loaded = re.findall(r"rank \d of 2 loaded step (\d+) from shared", trainings.logs(job, 2))
    assert len(loaded) == 2
    # What was lost may have been saved at the end, some steps after the one that was waited for.
    assert SAVED <= int(loaded[0]) == int(loaded[1])
    trainings.await_log(job, 2, f"did {int(loaded[0]) + 5}\n")
    urgent = trainings.preempt()
    trainings.resize(job, 1)
    node = trainings.drain(job, 2)
    trainings.hurry()
    trainings.cancel(urgent)

    trainings.server.wait(job, "succeeded", "failed")
    last = max(int(step) for step in re.findall(r"did (\d+)", trainings.logs(job, 2)))
    assert last < STEPS
    # The signal and the launcher's own message race; either one makes the training save.
    saved = rf"(SIGTERM \(preempted\)|the scheduler asked for it): step {last} is durable \(shared\)"
    assert re.search(saved, trainings.logs(job, 2, "err")), trainings.logs(job, 2, "err")
    assert re.findall(r"rank \d of \d loaded .*", trainings.logs(job, 3)) == [
        f"rank 0 of 1 loaded step {last} from shared"
    ]
    assert node not in trainings.nodes_of(job, 3)
    assert re.findall(r"ends with (\w+)", trainings.logs(job, 3)) == [undisturbed()], trainings.logs(job, 3, "err")
