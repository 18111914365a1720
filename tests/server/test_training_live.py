"""Trainings under a real server: stopped, drained and resumed elsewhere, they end as if nothing had happened."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from running import Server, eventually

from images import engine_settings, image_of_this_machine
from job_python import JOB_PYTHON

pytestmark = [
    pytest.mark.needs("torch"),
    pytest.mark.skipif(sys.executable != JOB_PYTHON, reason="jobs cannot run the Python that has torch"),
]

ROOT = Path(__file__).parents[2]
PROGRAM = str(Path(__file__).with_name("training.py"))
STEPS = 150
STEP_S = 0.05
TRAIN = (JOB_PYTHON, PROGRAM, str(STEPS), str(STEP_S))
UNDER_A_SHELL = ("sh", "-c", f"{' '.join(TRAIN)}; exit $?")
ENOUGH = 20
"""After so many steps a training is well under way, and far from what it saves by itself."""


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    """A server with two nodes of two GPUs."""
    started = Server(folder, "--simulate", "--nodes", "2", "--gpus", "2", "--policy", "priority").start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the weights in which the training ends that nobody stops."""
    environment = {**os.environ, "PHALANX_CHECKPOINT_DIR": str(tmp_path_factory.mktemp("undisturbed"))}
    command = [sys.executable, PROGRAM, str(STEPS), "0"]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=environment).stdout
    return re.findall(r"ends with (\w+)", told)[0]


def submit(server: Server, command: Sequence[str], **job: Any) -> str:
    """Submits a training that saves its work; its id."""
    settings = {"checkpoint": {}, "grace": "60s", **job}
    return str(server.submit(command=list(command), **settings)["id"])


def logs(server: Server, job: str, attempt: int, stream: str = "out") -> str:
    """What all tasks of an attempt printed."""
    folder = server.data / "jobs" / job / str(attempt)
    return "".join(path.read_text() for path in sorted(folder.glob(f"*.{stream}")))


def await_steps(server: Server, job: str, attempt: int = 1) -> None:
    eventually(lambda: f"did {ENOUGH}\n" in logs(server, job, attempt))


def last_step(server: Server, job: str, attempt: int) -> int:
    return max(int(step) for step in re.findall(r"did (\d+)", logs(server, job, attempt)))


def check_resumed(server: Server, job: str, ranks: int, why: str = "preempted") -> None:
    """The last step of the first attempt was durable, and the second went on from there on so many ranks."""
    last = last_step(server, job, 1)
    assert ENOUGH <= last < STEPS
    assert f"SIGTERM ({why}): step {last} is durable (shared)" in logs(server, job, 1, "err")
    loaded = re.findall(r"rank \d of (\d) loaded step (\d+) from (\w+)", logs(server, job, 2))
    assert loaded == [(str(ranks), str(last), "shared")] * ranks


def check_ended(server: Server, job: str, digest: str) -> None:
    server.wait(job, "succeeded")
    ends = re.findall(r"ends with (\w+)", logs(server, job, 2))
    assert ends
    assert set(ends) == {digest}


def nodes_of(server: Server, job: str, attempt: int) -> list[str]:
    attempts = server.client.get(f"/jobs/{job}/attempts").raise_for_status().json()["items"]
    return next(list(each["nodes"]) for each in attempts if each["number"] == attempt)


def preempt(server: Server, gpus: int) -> str:
    """Has a job of a higher priority take its place; its id, once it runs."""
    urgent = server.submit(command=["sleep", "1000"], priority=100, gang=[{"replicas": gpus, "gpus": 1}])["id"]
    server.wait(urgent, "running")
    return str(urgent)


def test_a_preempted_training_goes_on_elsewhere_on_another_number_of_ranks(server: Server, undisturbed: str) -> None:
    job = submit(server, TRAIN, gang=[{"replicas": 2, "gpus": 1}])
    await_steps(server, job)
    urgent = preempt(server, 4)
    server.client.post(f"/jobs/{job}:resize", json={"replicas": 1}).raise_for_status()
    (node,) = nodes_of(server, job, 1)
    server.client.post(f"/nodes/{node}:drain").raise_for_status()
    server.client.post(f"/jobs/{urgent}:cancel").raise_for_status()
    check_ended(server, job, undisturbed)
    check_resumed(server, job, ranks=1)
    assert node not in nodes_of(server, job, 2)


def test_a_training_whose_node_is_emptied_goes_on_at_another(server: Server, undisturbed: str) -> None:
    job = submit(server, UNDER_A_SHELL, gpus=1)
    await_steps(server, job)
    (node,) = nodes_of(server, job, 1)
    window = f"maintenance: [{{name: kernel, nodes: [{node}], start: +0s, for: 1h}}]"
    server.client.put("/cluster", content=window, headers={"Content-Type": "application/yaml"}).raise_for_status()
    check_ended(server, job, undisturbed)
    check_resumed(server, job, ranks=1, why="maintenance")
    assert node not in nodes_of(server, job, 2)


def test_a_training_under_torchrun_goes_on_with_another_number_of_workers(server: Server, undisturbed: str) -> None:
    launcher = f"{JOB_PYTHON} -m torch.distributed.run --standalone"
    # The first attempt has two workers, the second one.
    script = f"exec {launcher} --nproc-per-node $((3 - PHALANX_ATTEMPT)) {' '.join(TRAIN[1:])}"
    job = submit(server, ("sh", "-c", script), gpus=1)
    await_steps(server, job)
    urgent = preempt(server, 4)
    server.client.post(f"/jobs/{urgent}:cancel").raise_for_status()
    check_ended(server, job, undisturbed)
    check_resumed(server, job, ranks=1)


def helpers(server: Server) -> list[str]:
    """The processes beside trainers of a server's jobs, by what they say they are."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            variables = environment.read_bytes().decode(errors="replace").split("\0")
            if any(each.startswith(f"PHALANX_NOTICE_FILE={server.data}") for each in variables):
                found += [each for each in variables if each.startswith("PHALANX_HELPER=")]
    return found


def test_workers_that_torchrun_restarts_find_their_memory(server: Server, undisturbed: str) -> None:
    launcher = f"{JOB_PYTHON} -m torch.distributed.run --standalone --max-restarts 1 --nproc-per-node 2"
    env = {"TRAINING_DIES_AT": "25"}
    job = submit(server, ("sh", "-c", f"exec {launcher} {' '.join(TRAIN[1:])}"), gpus=1, env=env)
    server.wait(job, "succeeded", "failed")
    told = logs(server, job, 1)
    assert sorted(re.findall(r"rank \d of 2 loaded step \d+ from \w+", told)) == [
        "rank 0 of 2 loaded step 20 from host",
        "rank 1 of 2 loaded step 20 from host",
    ], logs(server, job, 1, "err")
    assert set(re.findall(r"ends with (\w+)", told)) == {undisturbed}
    assert helpers(server) == []


def test_the_task_of_a_service_that_is_restarted_finds_its_memory_until_the_attempt_ends(server: Server) -> None:
    command = (*TRAIN[:2], "100000", TRAIN[3])
    job = submit(server, command, kind="service", gpus=1, env={"TRAINING_DIES_AT": "25"}, preemptible=True)
    eventually(lambda: "loaded step 20 from host" in logs(server, job, 1))
    assert "PHALANX_HELPER=keeper" in helpers(server)
    server.client.post(f"/jobs/{job}:cancel").raise_for_status()
    server.wait(job, "cancelled")
    assert helpers(server) == []


@pytest.fixture
def containers(tmp_path: Path, folder: Path) -> Iterator[Server]:
    """A server with a node of two GPUs whose jobs may run in containers."""
    options = ("--simulate", "--nodes", "1", "--gpus", "2", "--policy", "priority")
    started = Server(folder, *options, CONTAINERS_CONF=str(engine_settings(tmp_path))).start()
    yield started
    started.stop()


@pytest.mark.needs("podman")
@pytest.mark.skipif(os.getuid() != 0, reason="the image's files are root's")
@pytest.mark.parametrize("command", [TRAIN, UNDER_A_SHELL], ids=["itself", "shell"])
def test_a_training_in_a_container_hears_the_notice_whatever_the_first_process_is(
    tmp_path: Path, containers: Server, undisturbed: str, command: tuple[str, ...]
) -> None:
    mounts = [f"{place}:{place}" for place in ("/usr", str(ROOT))]
    job = submit(containers, command, gpus=1, image=image_of_this_machine(tmp_path), mounts=mounts)
    await_steps(containers, job)
    urgent = preempt(containers, 2)
    containers.client.post(f"/jobs/{urgent}:cancel").raise_for_status()
    check_ended(containers, job, undisturbed)
    check_resumed(containers, job, ranks=1)
