"""Trainings under `phalanx launch` and a real server: killed, preempted and resized, they end as if undisturbed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Server, eventually

from job_python import JOB_PYTHON

pytestmark = [
    pytest.mark.needs("torch"),
    pytest.mark.skipif(sys.executable != JOB_PYTHON, reason="jobs cannot run the Python that has torch"),
]

PROGRAM = str(Path(__file__).with_name("training.py"))
STEPS, STEP_S = 150, 0.02
LAUNCH = (JOB_PYTHON, "-m", "phalanx", "launch", "--", JOB_PYTHON, PROGRAM, str(STEPS), str(STEP_S))
SAVED = 60
"""The first step that a training saves by itself where it outlives an attempt."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with two nodes of two GPUs."""
    folder = tmp_path_factory.mktemp("server") / "data"
    started = Server(folder, "--simulate", "--nodes", "2", "--gpus", "2", "--policy", "priority").start()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the weights in which a training ends that is not disturbed."""
    environment = {**os.environ, "PHALANX_CHECKPOINT_DIR": str(tmp_path_factory.mktemp("undisturbed"))}
    command = [sys.executable, PROGRAM, str(STEPS), "0"]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=environment).stdout
    return re.findall(r"ends with (\w+)", told)[0]


def logs(server: Server, job: str, attempt: int, stream: str = "out") -> str:
    """What all tasks of an attempt printed."""
    folder = server.data / "jobs" / job / str(attempt)
    return "".join(path.read_text() for path in sorted(folder.glob(f"*.{stream}")))


def await_steps(server: Server, job: str, attempt: int, steps: int) -> None:
    try:
        eventually(lambda: f"did {steps}\n" in logs(server, job, attempt))
    except AssertionError:
        told = "".join(
            logs(server, job, number, stream) for number in range(1, attempt + 1) for stream in ("out", "err")
        )
        pytest.fail(f"attempt {attempt} did not do step {steps}: {server.job(job)}\n{told}")


def nodes_of(server: Server, job: str, attempt: int) -> list[str]:
    attempts = server.client.get(f"/jobs/{job}/attempts").raise_for_status().json()["items"]
    return next(list(each["nodes"]) for each in attempts if each["number"] == attempt)


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


def test_ranks_that_the_launcher_starts_again_find_their_memory(server: Server, undisturbed: str) -> None:
    command = [*LAUNCH[:4], "--nproc-per-node", "2", *LAUNCH[4:]]
    job = server.submit(command=command, gpus=1, checkpoint={}, env={"TRAINING_DIES_AT": "25"})["id"]
    server.wait(job, "succeeded", "failed")
    told = logs(server, job, 1)
    assert sorted(re.findall(r"rank \d of 2 loaded step \d+ from \w+", told)) == [
        "rank 0 of 2 loaded step 20 from host",
        "rank 1 of 2 loaded step 20 from host",
    ], logs(server, job, 1, "err")
    assert set(re.findall(r"ends with (\w+)", told)) == {undisturbed}


def test_a_launched_training_shrinks_and_grows_by_plan_within_one_attempt(server: Server, undisturbed: str) -> None:
    gang = [{"replicas": {"min": 1, "max": 2}, "gpus": 1}]
    command = [*LAUNCH[:-1], "0.2"]
    job = server.submit(command=command, gang=gang, checkpoint={}, grace="60s")["id"]
    await_steps(server, job, 1, 10)
    other = server.submit(command=["sleep", "1000"], priority=100, gang=[{"replicas": 3, "gpus": 1}])["id"]
    server.wait(other, "running")
    eventually(lambda: "rank 0 of 1 loaded step" in logs(server, job, 1))
    server.client.post(f"/jobs/{other}:cancel").raise_for_status()
    eventually(lambda: "rank 1 of 2 loaded step" in logs(server, job, 1))
    server.wait(job, "succeeded", "failed")
    assert set(re.findall(r"ends with (\w+)", logs(server, job, 1))) == {undisturbed}, logs(server, job, 1, "err")
    assert re.findall(r"epoch (\d+): ranks 0 to 0 of (\d)", logs(server, job, 1, "err")) == [
        ("1", "2"),
        ("2", "1"),
        ("3", "2"),
    ]


def test_a_launched_training_survives_a_dead_node_and_a_preemption_with_another_world(
    server: Server, undisturbed: str
) -> None:
    # So slow that it is not over before it is killed or preempted, on a slow machine either.
    command = [*LAUNCH[:-1], "0.1"]
    gang = [{"replicas": 2, "gpus": 1}]
    job = server.submit(command=command, gang=gang, checkpoint={}, grace="60s", retry={"limit": 2})["id"]
    await_steps(server, job, 1, SAVED + 10)
    os.kill(agent_of(server, job, 1, task=1), signal.SIGKILL)

    await_steps(server, job, 2, SAVED + 20)
    loaded = re.findall(r"rank \d of 2 loaded step (\d+) from shared", logs(server, job, 2))
    assert len(loaded) == 2
    assert int(loaded[0]) >= SAVED
    urgent = server.submit(command=["sleep", "1000"], priority=100, gang=[{"replicas": 4, "gpus": 1}])["id"]
    server.wait(urgent, "running")
    server.client.post(f"/jobs/{job}:resize", json={"replicas": 1}).raise_for_status()
    (node,) = nodes_of(server, job, 2)
    server.client.post(f"/nodes/{node}:drain").raise_for_status()
    server.client.post(f"/jobs/{urgent}:cancel").raise_for_status()

    server.wait(job, "succeeded", "failed")
    last = max(int(step) for step in re.findall(r"did (\d+)", logs(server, job, 2)))
    assert last < STEPS
    # The signal and the launcher's own message race; either one makes the training save.
    saved = rf"(SIGTERM \(preempted\)|the scheduler asked for it): step {last} is durable \(shared\)"
    assert re.search(saved, logs(server, job, 2, "err")), logs(server, job, 2, "err")
    assert re.findall(r"rank \d of \d loaded .*", logs(server, job, 3)) == [
        f"rank 0 of 1 loaded step {last} from shared"
    ]
    assert node not in nodes_of(server, job, 3)
    assert re.findall(r"ends with (\w+)", logs(server, job, 3)) == [undisturbed], logs(server, job, 3, "err")
