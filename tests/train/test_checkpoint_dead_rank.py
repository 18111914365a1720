"""One rank dies: the others do not wait for it, wherever they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.distributed import HashStore

from phalanx.train.checkpoint.copies.agreement import Agreement, RankEndedError
from phalanx.train.checkpoint.copies.presence import Chair, Member
from phalanx.train.checkpoint.host.keeper import is_alive

TOKEN = "t" * 32

TRAINER = """
import os, pathlib, signal, sys, time
import torch
import torch.distributed as dist
from phalanx.train.checkpoint import Checkpointer, Host

folder, where = pathlib.Path(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo")
rank = dist.get_rank()
with Checkpointer({"model": torch.nn.Linear(2, 2)}, [Host(every=1000)], job=sys.argv[1]) as checkpointer:
    checkpointer.step()
    if rank != 2:
        (folder / f"new-{rank}").write_text(str(os.getpid()))
        (folder / f"new-{rank}").rename(folder / f"pid-{rank}")
    dist.barrier()
    if rank == 2:
        (folder / "new").write_text(str(time.time()))
        (folder / "new").rename(folder / "died")
        os.kill(os.getpid(), signal.SIGKILL)
    if where == "collective":
        # Neither has anything to send, and the dead one is no part of it.
        dist.recv(torch.zeros(1), src=1 - rank)
    checkpointer.save()
    while checkpointer.step():
        time.sleep(0.01)
"""


def until(holds: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.01)


@pytest.mark.parametrize("where", ["meeting", "collective"])
def test_survivors_under_torchrun_end_within_two_seconds_of_the_death_of_a_rank(tmp_path: Path, where: str) -> None:
    (tmp_path / "trainer.py").write_text(TRAINER)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (
        (tmp_path / "told").open("w") as told,
        subprocess.Popen(
            [*launcher, str(tmp_path / "trainer.py"), str(tmp_path), where], env=environment, stderr=told
        ) as torchrun,
    ):
        until(lambda: (tmp_path / "died").exists() and len(list(tmp_path.glob("pid-*"))) == 2)
        pids = [int(path.read_text()) for path in tmp_path.glob("pid-*")]
        until(lambda: not any(is_alive(pid) for pid in pids))
        assert time.time() - float((tmp_path / "died").read_text()) < 2.0, (tmp_path / "told").read_text()
    assert torchrun.returncode == 1
    assert "rank 2 has ended" in (tmp_path / "told").read_text()


def test_a_meeting_is_over_once_a_rank_has_ended_that_has_not_come() -> None:
    store = HashStore()
    meetings = [Agreement(store, rank, 3, timeout_s=60) for rank in range(3)]
    chair = Chair("127.0.0.1", TOKEN)
    members = [Member(rank, chair.address, TOKEN) for rank in (1, 2)]
    for agreement, presence in zip(meetings, [chair, *members], strict=True):
        agreement.presence = presence
    faults: list[Exception] = []

    def meet(rank: int) -> None:
        try:
            meetings[rank].share("a test", rank)
        except RankEndedError as error:
            faults.append(error)

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    members[1].close()
    for thread in threads:
        thread.join(20)
    assert [str(each) for each in faults] == ["a test: rank 2 has ended; look at its log and its node"] * 2
    for each in (chair, members[0]):
        each.close()


def test_a_rank_that_left_as_agreed_is_not_lost_and_one_that_died_is() -> None:
    chair = Chair("127.0.0.1", TOKEN)
    members = [Member(rank, chair.address, TOKEN) for rank in (1, 2, 3)]
    members[0].leave()
    members[0].close()
    members[1].close()
    until(lambda: set(members[2].ended) == {1, 2})
    assert set(members[2].lost) == {2} == set(chair.lost)
    chair.close()
    until(lambda: 0 in members[2].lost)
    members[2].close()


def test_a_stranger_is_no_rank() -> None:
    chair = Chair("127.0.0.1", TOKEN)
    member = Member(1, chair.address, "x" * 32)
    until(lambda: 0 in member.lost)
    assert not chair.ended
    chair.close()
    member.close()


def test_a_signal_is_heard_in_a_meeting_and_does_not_end_it() -> None:
    heard: list[int] = []
    former = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    store = HashStore()

    def come_late() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        until(lambda: heard)
        Agreement(store, 1, 2, timeout_s=60).share("a test", 1)

    late = threading.Thread(target=come_late)
    late.start()
    assert Agreement(store, 0, 2, timeout_s=60).share("a test", 0) == [0, 1]
    late.join()
    assert heard == [signal.SIGUSR1]
    signal.signal(signal.SIGUSR1, former)
