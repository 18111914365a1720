"""Preempted jobs that save nothing, under the real server: suspended, and resumed with nothing lost. The driver is a
fake: here is no GPU.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Server, eventually

from fake_cuda import USES_CUDA, FakeDriver

COUNTS = USES_CUDA + "i=0; while [ $i -lt {steps} ]; do i=$((i+1)); echo $i; sleep 0.02; done"


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    return FakeDriver(tmp_path / "cuda")


@pytest.fixture
def server(tmp_path: Path, driver: FakeDriver) -> Iterator[Server]:
    options = ("--backend", "local", "--simulate", "--nodes", "1", "--gpus", "2", "--policy", "priority")
    server = Server(tmp_path / "data", *options, PHALANX_CUDA_DRIVER=str(driver.library)).start()
    yield server
    for job in server.client.get("/jobs?state=waiting,starting,running,suspended,stopping").json()["items"]:
        server.client.post(f"/jobs/{job['id']}:cancel")
    eventually(lambda: not server.client.get("/jobs?state=starting,running,suspended,stopping").json()["items"])
    server.stop()


def counting(server: Server, driver: FakeDriver, steps: int = 100_000, **job: Any) -> str:
    """A job that counts on both GPUs and saves nothing."""
    command = ["sh", "-c", COUNTS.format(steps=steps)]
    made = server.submit(command=command, gpus=2, env={"FAKE_CUDA": str(driver.folder)}, grace="1s", **job)
    return str(made["id"])


def counted(server: Server, job: str) -> list[int]:
    answer = server.client.get(f"/jobs/{job}/logs")
    return [int(line) for line in answer.text.split()] if answer.status_code == 200 else []


def test_a_preempted_job_goes_on_where_it_was_once_it_has_its_gpus_again(server: Server, driver: FakeDriver) -> None:
    low = counting(server, driver, steps=150)
    eventually(lambda: len(counted(server, low)) > 5)
    high = counting(server, driver, steps=100, priority=5)
    server.wait(low, "suspended")
    server.wait(high, "running", "succeeded")
    at_rest = counted(server, low)
    why = server.client.get(f"/jobs/{low}/why").json()
    assert why["why"].startswith("it is suspended and goes on where it was"), why
    assert why["preempted"].endswith("what it has done is kept in the memory of n0"), why
    server.wait(high, "succeeded")
    done = server.wait(low, "succeeded")
    assert counted(server, low) == list(range(1, 151))
    assert len(at_rest) < 150
    assert done["attempts"] == 1
    assert driver.calls()[:2] == ["lock", "checkpoint"]
    assert driver.calls()[-2:] == ["restore", "unlock"]


def test_a_suspended_job_outlives_its_server(server: Server, driver: FakeDriver) -> None:
    low = counting(server, driver, steps=150)
    eventually(lambda: len(counted(server, low)) > 5)
    high = counting(server, driver, priority=5)
    server.wait(low, "suspended")
    server.wait(high, "running")
    server.kill()
    server.start()
    assert server.job(low)["state"] == "suspended"
    server.client.post(f"/jobs/{high}:cancel").raise_for_status()
    server.wait(low, "succeeded")
    assert counted(server, low) == list(range(1, 151))


def test_a_server_that_is_killed_while_it_suspends_a_job_loses_nothing(server: Server, driver: FakeDriver) -> None:
    low = counting(server, driver, steps=150)
    eventually(lambda: len(counted(server, low)) > 5)
    driver.slow("checkpoint", 1_500)
    high = counting(server, driver, steps=20, priority=5)
    eventually(lambda: "lock" in driver.calls())
    server.kill()
    server.start()
    server.wait(high, "succeeded")
    server.wait(low, "succeeded")
    assert counted(server, low) == list(range(1, 151))


def test_a_job_that_cannot_be_suspended_is_stopped_and_starts_anew(server: Server, driver: FakeDriver) -> None:
    driver.fail("checkpoint", 801)
    low = counting(server, driver, steps=60)
    eventually(lambda: len(counted(server, low)) > 5)
    high = counting(server, driver, steps=20, priority=5)
    server.wait(high, "succeeded")
    done = server.wait(low, "succeeded")
    assert done["attempts"] == 2


def test_a_suspended_job_whose_processes_are_killed_starts_anew(server: Server, driver: FakeDriver) -> None:
    low = counting(server, driver, steps=60, retry={"limit": 1})
    eventually(lambda: len(counted(server, low)) > 5)
    (pid,) = driver.users()
    high = counting(server, driver, steps=100, priority=5)
    server.wait(low, "suspended")
    server.wait(high, "running")
    os.kill(pid, signal.SIGKILL)
    server.wait(low, "waiting")
    server.wait(low, "succeeded")
    assert server.job(low)["attempts"] == 2
    assert server.job(high)["state"] == "succeeded"


def test_a_suspended_job_can_be_cancelled(server: Server, driver: FakeDriver) -> None:
    low = counting(server, driver)
    eventually(lambda: len(counted(server, low)) > 5)
    (pid,) = driver.users()
    high = counting(server, driver, priority=5)
    server.wait(low, "suspended")
    server.client.post(f"/jobs/{low}:cancel").raise_for_status()
    server.wait(low, "cancelled")
    eventually(lambda: not Path(f"/proc/{pid}").exists())
    server.wait(high, "running")
