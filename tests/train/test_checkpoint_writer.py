"""The process that writes for a trainer: what was ordered is written, whatever ends the trainer."""

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

from phalanx.train.checkpoint.ending.patience import PARTS_PATIENCE_S, PartsPatience
from phalanx.train.checkpoint.host.keeper import Keeper
from phalanx.train.checkpoint.store import steps

TRAINER = """
import os, signal, sys, time
import torch
from phalanx.train.checkpoint import Checkpointer, Host, Shared
tiers = [Host(every=1000), Shared(sys.argv[1], every=1000)]
checkpointer = Checkpointer({"model": torch.nn.Linear(4, 4)}, tiers, job=sys.argv[2], signals=())
checkpointer.step()
# The writer is stopped before it can write, so that the trainer ends first.
writer = checkpointer._station.background
writer.address
os.kill(writer.pid, signal.SIGSTOP)
checkpointer.save()
checkpointer._saver.hear(wait=True)
print(writer.pid, flush=True)
time.sleep(600)
"""


LONG_MS = "600000"
"""Longer than a writer needs, which loads torch first, on a machine with much else to do."""


class Trainer:
    """A trainer that has ordered step 1, and a writer that has not begun with it."""

    def __init__(self, folder: Path, job: str, **environment: str) -> None:
        self.folder, self.job = folder, job
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINER, str(folder), job],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PHALANX_GRACE_MS": LONG_MS, **environment},
        )
        assert self.process.stdout is not None
        with self.process.stdout as told:
            self.writer = int(told.readline())

    def end_by(self, number: signal.Signals) -> None:
        """Sends a signal to its process group, as launchers do, and lets the writer go on once it is dead."""
        os.killpg(self.process.pid, number)
        self.process.wait(30)
        os.kill(self.writer, signal.SIGCONT)


@pytest.fixture
def job() -> Iterator[str]:
    name = f"test-{uuid.uuid4()}"
    yield name
    Keeper.attach(name, 0).end()


def until(holds: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + int(LONG_MS) / 1e3
    while not holds():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_what_was_ordered_is_written_when_the_trainers_process_group_gets_a_signal(
    tmp_path: Path, job: str, number: signal.Signals
) -> None:
    trainer = Trainer(tmp_path, job)
    trainer.end_by(number)
    until(lambda: is_gone(trainer.writer))
    assert [each.step for each in steps(tmp_path)] == [1]


def test_the_writer_does_not_end_of_signals_to_itself(tmp_path: Path, job: str) -> None:
    trainer = Trainer(tmp_path, job)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(trainer.writer, number)
    trainer.end_by(signal.SIGKILL)
    until(lambda: is_gone(trainer.writer))
    assert [each.step for each in steps(tmp_path)] == [1]


def test_the_next_trainer_waits_until_all_is_written(tmp_path: Path, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_GRACE_MS", LONG_MS)
    trainer = Trainer(tmp_path, job)
    trainer.end_by(signal.SIGKILL)
    Keeper.attach(job, 0, patience_s=0).close()
    assert [each.step for each in steps(tmp_path)] == [1]


def test_a_successor_waits_for_parts_of_other_ranks_only_so_long() -> None:
    patience = PartsPatience()
    assert not patience.is_over(0, parts_alone=True, is_awaited=lambda: False)
    assert not patience.is_over(100, parts_alone=True, is_awaited=lambda: True)
    assert not patience.is_over(100 + PARTS_PATIENCE_S, parts_alone=True, is_awaited=lambda: True)
    assert patience.is_over(100.1 + PARTS_PATIENCE_S, parts_alone=True, is_awaited=lambda: True)


def test_a_successor_waits_for_what_this_rank_writes_however_long_that_takes() -> None:
    patience = PartsPatience()
    assert not patience.is_over(0, parts_alone=False, is_awaited=lambda: True)
    assert not patience.is_over(100, parts_alone=False, is_awaited=lambda: True)
    # Its own part was written, and for a moment it looks for the others'.
    assert not patience.is_over(200, parts_alone=True, is_awaited=lambda: True)


def test_a_writer_whose_time_is_over_ends(tmp_path: Path, job: str) -> None:
    trainer = Trainer(tmp_path / "never", job, PHALANX_GRACE_MS="0")
    trainer.end_by(signal.SIGKILL)
    until(lambda: is_gone(trainer.writer))
    assert steps(tmp_path / "never") == []
