"""Memory that outlives its trainer and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from phalanx.train.checkpoint.host.keeper import Keeper, KeeperError, address_of, is_awaited
from phalanx.train.checkpoint.host.segment import Segment

TRAINER = """
import sys, time
from phalanx.train.checkpoint.host.keeper import Keeper
from phalanx.train.checkpoint.host.segment import Segment
keeper = Keeper.attach(sys.argv[1], 0)
segment = Segment("a", keeper.create("a", 1 << 20))
segment.view[:5] = b"state"
print(keeper.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def job() -> Iterator[str]:
    name = f"test-{uuid.uuid4()}"
    yield name
    Keeper.attach(name, 0).end()


def eventually(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.01)


def is_listening(job: str) -> bool:
    return f"@{address_of(job, 0)}" in Path("/proc/net/unix").read_text()


def killed_trainer(job: str) -> int:
    """The keeper of a trainer that wrote something and was killed."""
    with subprocess.Popen([sys.executable, "-c", TRAINER, job], stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        pid = int(trainer.stdout.readline())
        trainer.kill()
    return pid


def test_memory_outlives_a_killed_trainer(job: str) -> None:
    pid = killed_trainer(job)
    keeper = Keeper.attach(job, 0)
    assert keeper.pid == pid
    assert keeper.segments() == {"a": 1 << 20}
    assert bytes(Segment("a", keeper.open("a")).view[:5]) == b"state"
    keeper.close()


def test_a_second_trainer_is_refused_while_the_first_lives(job: str) -> None:
    first = Keeper.attach(job, 0)
    with pytest.raises(KeeperError, match=f"held by process {os.getpid()}"):
        Keeper.attach(job, 0, patience_s=0.1)
    first.close()
    Keeper.attach(job, 0).close()


def test_seats_and_jobs_have_their_own_memory(job: str) -> None:
    first, second = Keeper.attach(job, 0), Keeper.attach(job, 1)
    os.close(first.create("a", 4096))
    assert second.segments() == {}
    second.end()
    first.close()


def test_the_keeper_ends_when_the_job_is_over(job: str) -> None:
    keeper = Keeper.attach(job, 0)
    keeper.end()
    eventually(lambda: not is_listening(job))


def test_the_keeper_ends_when_nobody_comes_back() -> None:
    job = f"test-{uuid.uuid4()}"
    keeper = Keeper.attach(job, 0, linger_s=0.2)
    time_held = time.monotonic() + 0.5
    eventually(lambda: time.monotonic() > time_held)
    assert keeper.segments() == {}, "it stays while it is held"
    keeper.close()
    eventually(lambda: not is_listening(job))


def test_a_keeper_that_is_killed_leaves_nothing_behind(job: str) -> None:
    before = shared_memory_kb()
    keeper = Keeper.attach(job, 0)
    segment = Segment("a", keeper.create("a", 64 << 20))
    segment.bytes.fill_(1)
    assert shared_memory_kb() >= before + 32_000
    os.kill(keeper.pid, signal.SIGKILL)
    segment.close()
    eventually(lambda: shared_memory_kb() < before + 32_000)
    with pytest.raises(KeeperError, match="is gone"):
        keeper.segments()
    keeper.close()


def shared_memory_kb() -> int:
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["Shmem"].split()[0])


def test_the_keeper_is_not_of_the_trainers_process_group(job: str) -> None:
    keeper = Keeper.attach(job, 0)
    assert os.getpgid(keeper.pid) != os.getpgid(0)
    keeper.close()


def test_asking_for_another_does_not_change_the_hold_of_the_trainer_that_shares_it(job: str) -> None:
    keeper = Keeper.attach(job, 0)
    assert not is_awaited(keeper.fileno())
    assert os.get_blocking(keeper.fileno())
    keeper.close()
