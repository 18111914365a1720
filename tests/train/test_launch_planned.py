"""Worlds that the scheduler plans, with real processes: each change of the gang is one epoch, without time-outs."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Launch, Launched, launching
from processes import free_port

from phalanx.bench.launch import warm

NEVER = "last_call_timeout=1000"
"""A world that waited for the last call would not begin."""


class Torchrun(Launched):
    """torchrun in place of our launcher."""

    def launcher(self, options: tuple[str, ...]) -> list[str]:
        return [warm.python(), "-m", "torch.distributed.run", "--rdzv-backend=phalanx", *options]


class Gang:
    """The tasks of an attempt and their file, as the scheduler keeps it."""

    def __init__(self, launch: Launch, *options: str) -> None:
        self._launch, self._options = launch, options
        self._path, self._port = launch.folder / "gang.json", free_port()
        self._since: dict[int, int] = {}
        self._version = 0
        self.tasks: dict[int, Launched] = {}

    def begin(self, *tasks: int) -> None:
        self._write(tasks, None)
        self._start(tasks)

    def change(self, *tasks: int) -> None:
        """As a supervisor does: those that leave have gone before others are started."""
        self._write(tuple(self.tasks), tasks)
        for task in set(self.tasks) - set(tasks):
            leaving = self.tasks.pop(task)
            leaving.process.send_signal(signal.SIGTERM)
            leaving.wait()
            del self._since[task]
        self._write(tasks, None)
        self._start(tasks)

    def _start(self, tasks: tuple[int, ...]) -> None:
        for task in (task for task in tasks if task not in self.tasks):
            self.tasks[task] = self.launcher(task, len(tasks))

    def launcher(self, task: int, size: int) -> Launched:
        """Starts one for a task, beside any that it has."""
        variables = {
            "PHALANX_GANG_FILE": str(self._path),
            "PHALANX_RANK": str(task),
            "PHALANX_ROLE": "worker",
            "PET_NNODES": str(size),
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": str(self._port),
            "PET_NPROC_PER_NODE": "1",
        }
        return self._launch("train()", *self._options, **variables)

    def _write(self, present: tuple[int, ...], coming: tuple[int, ...] | None) -> None:
        self._version += 1
        gang = {"version": self._version, "tasks": self._members(present)}
        if coming is not None:
            gang["next"] = {"tasks": self._members(coming)}
        new = Path(f"{self._path}.new")
        new.write_text(json.dumps(gang))
        new.replace(self._path)

    def _members(self, tasks: tuple[int, ...]) -> list[dict[str, object]]:
        return [
            {"rank": task, "role": "worker", "since": self._since.setdefault(task, self._version)} for task in tasks
        ]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    with launching(tmp_path) as launch:
        yield launch


def test_each_planned_change_is_one_step_also_when_the_first_agent_leaves(launch: Launch) -> None:
    gang = Gang(launch, "--rdzv-conf", f"{NEVER},lease=3")
    gang.begin(0)
    launch.world(1)
    gang.change(0, 1, 2)
    launch.world(3)
    assert sorted(launch.epochs()) == [1, 2]
    # The endpoint was the first agent's.
    gang.change(1, 2)
    launch.world(2, epochs_before=2)
    gang.change(1, 2, 3)
    launch.world(3, epochs_before=3)
    assert sorted(launch.epochs()) == [1, 2, 3, 4]
    assert [note["restarts"] for note in launch.notes("began")] == [0] * 9
    launch.let_go()
    assert [task.wait() for task in gang.tasks.values()] == [0, 0, 0]


def test_a_swap_of_one_task_for_another_starts_ranks_once(launch: Launch) -> None:
    gang = Gang(launch, "--rdzv-conf", f"{NEVER},lease=3")
    gang.begin(0, 1)
    launch.world(2)
    gang.change(0, 2)
    launch.world(2, epochs_before=1)
    assert len(launch.epochs()) == 2
    assert sorted(note["rank"] for note in launch.notes("saved")) == [0, 1]
    launch.let_go()
    assert [task.wait() for task in gang.tasks.values()] == [0, 0]


@pytest.mark.parametrize("task", [0, 1])
def test_a_second_launcher_in_one_task_says_that_it_waits_and_the_first_goes_on(launch: Launch, task: int) -> None:
    gang = Gang(launch, "--rdzv-conf", f"{NEVER},lease=3")
    gang.begin(0, 1)
    launch.world(2)
    second = gang.launcher(task, 2)
    launch.until(lambda: f"has an agent of task {task} already" in second.errors(), "the second is told")
    launch.let_go()
    assert [each.wait() for each in (*gang.tasks.values(), second)] == [0, 0, 0]
    assert launch.epochs() == {1: [0, 1]}


@pytest.mark.needs("torch")
def test_torchrun_meets_as_planned(launch: Launch) -> None:
    launch.kind = Torchrun
    gang = Gang(launch, "--max-restarts", "3")
    gang.begin(0, 1)
    launch.until(lambda: worlds(launch).get(2) == 2, "a world of 2")
    gang.change(0, 1, 2)
    launch.until(lambda: worlds(launch).get(3) == 3, "a world of 3")
    gang.change(1, 2)
    launch.until(lambda: worlds(launch).get(2) == 4, "a world of 2 again")
    launch.let_go()
    assert [task.wait() for task in gang.tasks.values()] == [0, 0]


def worlds(launch: Launch) -> dict[int, int]:
    """How many ranks have begun, by the size of their world."""
    sizes = [note["world"] for note in launch.notes("began")]
    return {size: sizes.count(size) for size in sizes}
