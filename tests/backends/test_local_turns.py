"""Turns on this machine that end between two steps of a job, with real processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from builders import a_job
from phalanx.backends.local.backend import LocalBackend
from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.host.processes import process
from phalanx.backends.local.logs.files import log_files
from phalanx.backends.local.orders import Yard
from phalanx.cluster.device import Mode, Portion
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import ActionId, Start
from phalanx.train.turns import Turns
from phalanx.workload.job import Execution, Job

PATIENCE_S = 240.0
TURN_MS = 1500
"""Long enough to come to a boundary before patience ends, also where other work keeps the machine busy."""

STEPS = """
import sys, time
from phalanx.train.turns import Turns
say = lambda what: print(what, flush=True)
turns = Turns(leave=lambda: say("leaves"), come_back=lambda: say("back"))
for step in range(10_000):
    say("begin")
    until = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < until:
        time.sleep(0.001)
    say("end")
    turns.step_done(step)
"""

# The ranks of a gang wait for one another within a step, as those do that add up their gradients; one is slower.
GANG_STEPS = """
import os, time
from pathlib import Path
from phalanx.train.turns import Turns
say = lambda what: print(what, flush=True)
turns = Turns(leave=lambda: say("leaves"), come_back=lambda: say("back"))
met = [Path(os.environ["PHALANX_REST_FILE"]).parent.parent / f"met-{rank}" for rank in range(2)]
rank = int(os.environ["PHALANX_RANK"])
for step in range(10_000):
    with met[rank].open("a") as mine:
        mine.write(".")
    while not all(each.exists() and each.stat().st_size > step for each in met):
        time.sleep(0.001)
    time.sleep(0.05 * rank)
    say("end")
    turns.step_done(step)
"""

STAMPED = STEPS.replace("print(what", "print(what, time.monotonic()")
STAMPED_TICKS = "import time\nwhile True:\n    print('tick', time.monotonic(), flush=True)\n    time.sleep(0.001)"
TICKS = "import time\nwhile True:\n    print('tick', flush=True)\n    time.sleep(0.001)"


class Machine:
    """Jobs of one task each on one device of a local backend, without an engine."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.jobs: dict[str, Job] = {}
        self.backend = LocalBackend(Yard(data, turn_ms=TURN_MS), self.jobs.__getitem__)

    def start(self, name: str, *command: str, at_step: bool = True, tasks: int = 1) -> None:
        self.jobs[name] = replace(a_job(name, 1, tasks), execution=Execution((sys.executable, "-c", *command)))
        portion = Portion(Mode.TURNS, 500, 0, turns=2, turn=len(self.jobs) - 1, at_step=at_step)
        slots = tuple(Slot(rank, "worker", "n0", (0,), portion) for rank in range(tasks))
        self.backend.carry_out(Start(ActionId(1, name, 1, 0), Placement(slots)), 0)

    def printed(self, name: str, rank: int = 0) -> list[str]:
        found = [log.path for log in log_files(self.data, name, 1) if (log.rank, log.stream) == (rank, "out")]
        return found[0].read_text().split() if found else []

    def is_frozen(self, name: str, rank: int = 0) -> bool:
        state = AttemptFolder(str(self.data / "jobs" / name / "1")).state()
        found = process(state["tasks"][rank]["pid"]) if state is not None and state["tasks"] else None
        return found is not None and found.state == "T"

    def last_words(self, name: str, times: int, rank: int = 0) -> list[str]:
        """What a task had last said each time that it was found frozen, so many rests long."""
        words: list[str] = []

        def look() -> bool:
            found = self.is_frozen(name, rank) and self.printed(name, rank)[-1]
            # Only what it had said while it was frozen all along counts.
            if found and self.is_frozen(name, rank):
                words.append(found)
            return bool(found)

        for _ in range(times):
            until(look)
            until(lambda: not self.is_frozen(name, rank))
        return words

    def stamps(self, name: str, what: str) -> list[float]:
        """When a task said something."""
        said = self.printed(name)
        return [float(said[i + 1]) for i, word in enumerate(said) if word == what]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.backend.adopt((), 0)
    until(lambda: not any((tmp_path / "backend" / "live").iterdir()))
    machine.backend.close()


def until(what: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline_s, "it never came"
        time.sleep(0.005)


def test_a_turn_goes_on_to_the_end_of_the_step_and_then_the_next_has_the_device(machine: Machine) -> None:
    machine.start("a", STEPS, "0.13")
    until(lambda: "end" in machine.printed("a"))
    machine.start("b", TICKS)
    assert machine.last_words("a", 3) == ["leaves"] * 3
    assert machine.printed("a").count("back") >= 2
    assert "tick" in machine.printed("b")


def test_who_comes_next_waits_until_the_step_has_ended(machine: Machine) -> None:
    """From the beginning of a step of a to its end b does nothing."""
    machine.start("a", STAMPED, "0.2")
    until(lambda: machine.printed("a"))
    machine.start("b", STAMPED_TICKS)
    until(lambda: len(machine.stamps("a", "back")) >= 3)
    first, last = machine.stamps("a", "leaves")[0], machine.stamps("a", "back")[-1]
    steps = list(zip(machine.stamps("a", "begin"), machine.stamps("a", "end"), strict=False))
    steps = [(begin, end) for begin, end in steps if first < begin and end < last]
    ticks = [tick for tick in machine.stamps("b", "tick") if first < tick < last]
    assert steps
    assert ticks
    assert not [tick for tick in ticks for begin, end in steps if begin < tick < end]


def test_all_tasks_of_a_gang_stop_after_the_same_step(machine: Machine) -> None:
    machine.start("a", GANG_STEPS, tasks=2)
    until(lambda: all("end" in machine.printed("a", rank) for rank in range(2)))
    machine.start("b", TICKS)
    until(lambda: all(machine.printed("a", rank).count("back") >= 3 for rank in range(2)))
    steps_before = [steps_before_rests(machine.printed("a", rank))[:3] for rank in range(2)]
    assert steps_before[0] == steps_before[1]


def steps_before_rests(said: list[str]) -> list[int]:
    return [said[:i].count("end") for i, word in enumerate(said) if word == "leaves"]


def test_one_that_does_not_know_of_steps_is_stopped_where_it_is(machine: Machine) -> None:
    machine.start("a", TICKS)
    machine.start("b", TICKS)
    until(lambda: machine.is_frozen("a"))
    until(lambda: machine.is_frozen("b"))


def test_a_step_that_does_not_end_is_waited_for_up_to_one_more_turn(machine: Machine) -> None:
    machine.start("a", STEPS, "3600")
    until(lambda: "begin" in machine.printed("a"))
    machine.start("b", TICKS)
    assert machine.last_words("a", 2) == ["begin"] * 2


def test_nothing_to_wait_for_is_left_behind(machine: Machine) -> None:
    machine.start("a", "from phalanx.train.turns import Turns\nTurns()\nprint('over')")
    shared = machine.data / "jobs" / "a" / "1" / "shared"
    until(lambda: "over" in machine.printed("a"))
    until(lambda: shared.is_dir() and sorted(path.name for path in shared.iterdir()) == ["gang.json", "share.json"])


def test_a_job_that_runs_elsewhere_takes_no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PHALANX_REST_FILE", "PHALANX_STEPS_PIPE", "PHALANX_RANK"):
        monkeypatch.delenv(name, raising=False)
    called: list[str] = []
    turns = Turns(lambda: called.append("leaves"), lambda: called.append("back"))
    turns.step_done(0)
    assert not called


def test_without_at_step_a_turn_ends_at_once(machine: Machine) -> None:
    machine.start("a", STEPS, "3600", at_step=False)
    machine.start("b", TICKS, at_step=False)
    until(lambda: machine.is_frozen("a"))
    until(lambda: machine.is_frozen("b"))
    assert not (machine.data / "jobs" / "a" / "1" / "shared" / "rest.json").exists()
