"""Trainings under a real server: stopped, drained and resumed elsewhere, they end as if nothing had happened."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from running import Server
from trainings import CAN_TRAIN, PROGRAM, STEPS, Trainings, training, training_server, undisturbed

from images import engine_settings, image_of_this_machine
from job_python import JOB_PYTHON

pytestmark = [
    pytest.mark.needs("torch"),
    pytest.mark.skipif(not CAN_TRAIN, reason="jobs cannot run the Python that has torch"),
]

ROOT = Path(__file__).parents[2]
SLOW_S = 0.2
"""So long that a training is not over before it is stopped, on a slow machine either."""

TRAIN = tuple(training(SLOW_S))
UNDER_A_SHELL = ("sh", "-c", f"{' '.join(TRAIN)}; exit $?")
TORCHRUN = f"{JOB_PYTHON} -m torch.distributed.run --standalone"
ENOUGH = 5
"""After so many steps a training is well under way, and far from what it saves by itself."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with training_server(tmp_path_factory.mktemp("server") / "data") as started:
        yield started


@pytest.fixture
def trainings(server: Server) -> Iterator[Trainings]:
    trainings = Trainings(server)
    yield trainings
    trainings.clear()


def check_resumed(trainings: Trainings, job: str, ranks: int, why: str = "preempted") -> None:
    """The last step of the first attempt was durable, and the second went on from there on so many ranks."""
    last = max(int(step) for step in re.findall(r"did (\d+)", trainings.logs(job, 1)))
    assert ENOUGH <= last < STEPS
    assert f"SIGTERM ({why}): step {last} is durable (shared)" in trainings.logs(job, 1, "err")
    loaded = re.findall(r"rank \d of (\d) loaded step (\d+) from (\w+)", trainings.logs(job, 2))
    assert loaded == [(str(ranks), str(last), "shared")] * ranks


def check_ended(trainings: Trainings, job: str) -> None:
    trainings.hurry()
    trainings.server.wait(job, "succeeded")
    ends = re.findall(r"ends with (\w+)", trainings.logs(job, 2))
    assert ends
    assert set(ends) == {undisturbed()}


def test_a_preempted_training_goes_on_elsewhere_on_another_number_of_ranks(trainings: Trainings) -> None:
    job = trainings.submit(TRAIN, gang=[{"replicas": 2, "gpus": 1}])
    trainings.await_log(job, 1, f"did {ENOUGH}\n")
    urgent = trainings.preempt()
    trainings.resize(job, 1)
    node = trainings.drain(job, 1)
    trainings.cancel(urgent)
    check_ended(trainings, job)
    check_resumed(trainings, job, ranks=1)
    assert node not in trainings.nodes_of(job, 2)


def test_a_training_whose_node_is_emptied_goes_on_at_another(trainings: Trainings) -> None:
    job = trainings.submit(UNDER_A_SHELL, gpus=1)
    trainings.await_log(job, 1, f"did {ENOUGH}\n")
    (node,) = trainings.nodes_of(job, 1)
    trainings.configure(f"maintenance: [{{name: kernel, nodes: [{node}], start: +0s, for: 1h}}]")
    trainings.await_log(job, 2, "loaded step")
    check_ended(trainings, job)
    check_resumed(trainings, job, ranks=1, why="maintenance")
    assert node not in trainings.nodes_of(job, 2)


def test_a_training_under_torchrun_goes_on_with_another_number_of_workers(trainings: Trainings) -> None:
    # The first attempt has two workers, the second one.
    script = f"exec {TORCHRUN} --nproc-per-node $((3 - PHALANX_ATTEMPT)) {' '.join(TRAIN[1:])}"
    job = trainings.submit(("sh", "-c", script), gpus=1)
    trainings.await_log(job, 1, f"did {ENOUGH}\n")
    urgent = trainings.preempt()
    trainings.cancel(urgent)
    check_ended(trainings, job)
    check_resumed(trainings, job, ranks=1)


def helpers(server: Server) -> list[str]:
    """The processes beside trainers of a server's jobs, by what they say they are."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            variables = environment.read_bytes().decode(errors="replace").split("\0")
            if any(each.startswith(f"PHALANX_NOTICE_FILE={server.data}") for each in variables):
                found += [each for each in variables if each.startswith("PHALANX_HELPER=")]
    return found


def test_workers_that_torchrun_restarts_find_their_memory(trainings: Trainings) -> None:
    script = f"exec {TORCHRUN} --max-restarts 1 --nproc-per-node 2 {' '.join(training(0)[1:])}"
    job = trainings.submit(("sh", "-c", script), gpus=1, env={"TRAINING_DIES_AT": "25"})
    trainings.server.wait(job, "succeeded", "failed")
    told = trainings.logs(job, 1)
    assert sorted(re.findall(r"rank \d of 2 loaded step \d+ from \w+", told)) == [
        "rank 0 of 2 loaded step 20 from host",
        "rank 1 of 2 loaded step 20 from host",
    ], trainings.logs(job, 1, "err")
    assert set(re.findall(r"ends with (\w+)", told)) == {undisturbed()}
    assert helpers(trainings.server) == []


def test_the_task_of_a_service_that_is_restarted_finds_its_memory_until_the_attempt_ends(trainings: Trainings) -> None:
    command = (JOB_PYTHON, PROGRAM, "100000", "0.05")
    job = trainings.submit(command, kind="service", gpus=1, env={"TRAINING_DIES_AT": "25"}, preemptible=True)
    trainings.await_log(job, 1, "loaded step 20 from host")
    assert "PHALANX_HELPER=keeper" in helpers(trainings.server)
    trainings.cancel(job)
    trainings.server.wait(job, "cancelled")
    assert helpers(trainings.server) == []


@pytest.fixture
def containers(tmp_path: Path, folder: Path) -> Iterator[Server]:
    """A server with a node of two GPUs whose jobs may run in containers."""
    options = ("--simulate", "--nodes", "1", "--gpus", "2", "--policy", "priority")
    started = Server(folder, *options, CONTAINERS_CONF=str(engine_settings(tmp_path))).start()
    yield started
    started.stop()


@pytest.mark.needs("podman")
@pytest.mark.skipif(os.getuid() != 0, reason="the image's files are root's")
@pytest.mark.parametrize("is_first", [True, False], ids=["itself", "shell"])
def test_a_training_in_a_container_hears_the_notice_whatever_the_first_process_is(
    tmp_path: Path, containers: Server, is_first: bool
) -> None:
    trainings = Trainings(containers)
    # What lets it hurry is not in its container.
    command = training(0.05) if is_first else ["sh", "-c", f"{' '.join(training(0.05))}; exit $?"]
    mounts = [f"{place}:{place}" for place in ("/usr", str(ROOT))]
    job = trainings.submit(command, gpus=1, image=image_of_this_machine(tmp_path), mounts=mounts)
    trainings.await_log(job, 1, f"did {ENOUGH}\n")
    urgent = trainings.preempt(gpus=2)
    trainings.cancel(urgent)
    check_ended(trainings, job)
    check_resumed(trainings, job, ranks=1)
