"""Suspending real processes so that their devices are free. The driver is a fake: here is no GPU."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from builders import a_job
from fake_cuda import USES_CUDA, FakeDriver
from phalanx.backends.capability import Capability
from phalanx.backends.live import Adopted
from phalanx.backends.local.backend import LocalBackend
from phalanx.backends.local.device_memory.meter import Meter
from phalanx.backends.local.device_memory.rates import FIRST, Rates
from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.host.offer import local_offer
from phalanx.backends.local.host.processes import arguments, descendants, process
from phalanx.backends.local.orders import Yard
from phalanx.backends.local.session import open_session
from phalanx.backends.local.shepherd import rest
from phalanx.backends.local.shepherd.boundary import Boundary
from phalanx.backends.local.shepherd.loop import Loop
from phalanx.backends.local.shepherd.swap import Swap, SwapOutcome
from phalanx.backends.local.turn_order import Key
from phalanx.backends.local.turns import Turns
from phalanx.backends.local.wire import Message
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import ActionId, Resume, Start, Stop, Suspend
from phalanx.protocol.event import AttemptEnded, Done, Event, Failed, Outcome, SuspendRates
from phalanx.workload.job import Execution, Job

PATIENCE_S = 240.0
COUNTS = USES_CUDA + "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done"
UUIDS = ("GPU-0a000000-0000-0000-0000-000000000000", "GPU-1b000000-0000-0000-0000-000000000000")


class Machine:
    """One job on a local backend, without an engine; the test is the engine."""

    def __init__(self, data: Path, driver: FakeDriver) -> None:
        self.data = data
        self.driver = driver
        self.job: Job = a_job("7")
        self.yard = Yard(data, device_names={"n0": UUIDS})
        self.backend = LocalBackend(self.yard, lambda _: self.job)
        self.seen: list[Event] = []
        self.seq = 0

    def start(self, *scripts: str) -> None:
        """Starts a task for each script, one device each."""
        words = " ".join(f"{rank}) {script};;" for rank, script in enumerate(scripts))
        command = ("sh", "-c", f"case $PHALANX_RANK in {words} esac")
        env = (("FAKE_CUDA", str(self.driver.folder)),)
        self.job = replace(a_job("7", 1, len(scripts), grace_ms=20_000), execution=Execution(command, env=env))
        self.ask(Start(self._id(), self.placement(len(scripts))))
        self.until(lambda: len(self.driver.users()) == sum(USES_CUDA in script for script in scripts))

    def placement(self, tasks: int = 1, *devices: int) -> Placement:
        numbers = devices or tuple(range(tasks))
        return Placement(tuple(Slot(rank, "worker", "n0", (numbers[rank],)) for rank in range(tasks)))

    def _id(self) -> ActionId:
        self.seq += 1
        return ActionId(1, "7", 1, self.seq - 1)

    def suspend(self) -> Event:
        return self.ask(Suspend(self._id(), host_mb=1024))

    def resume(self, *devices: int, tasks: int = 1) -> Event:
        return self.ask(Resume(self._id(), self.placement(tasks, *devices)))

    def stop(self) -> Event:
        return self.ask(Stop(self._id(), 20_000, "cancelled"))

    def ask(self, action: Start | Stop | Suspend | Resume) -> Event:
        self.backend.carry_out(action, 0)
        return self.hear(lambda event: isinstance(event, Done | Failed) and event.action == action.id)

    def hear(self, match: Callable[[Event], bool]) -> Event:
        found: list[Event] = []

        def heard() -> bool:
            self.seen += self.backend.events(0)
            found.extend(event for event in self.seen if match(event))
            return bool(found)

        self.until(heard)
        return found[0]

    @staticmethod
    def until(what: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < deadline_s, "it never came to be"
            time.sleep(0.02)

    def printed(self, rank: int = 0) -> int:
        """How far a task has counted."""
        lines = Path(AttemptFolder(str(self.data / "jobs" / "7" / "1")).log_path(rank, "out")).read_text().split()
        return len(lines)

    def shepherd(self) -> int:
        state = AttemptFolder(str(self.data / "jobs" / "7" / "1")).state()
        assert state is not None
        return state["pid"]


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    driver = FakeDriver(tmp_path / "cuda")
    monkeypatch.setenv("PHALANX_CUDA_DRIVER", str(driver.library))
    return driver


@pytest.fixture
def machine(tmp_path: Path, driver: FakeDriver) -> Iterator[Machine]:
    machine = Machine(tmp_path / "data", driver)
    yield machine
    machine.backend.adopt((), 0)
    machine.until(lambda: not any((tmp_path / "data" / "backend" / "live").iterdir()))
    machine.backend.close()


def test_a_suspended_attempt_has_left_its_devices_and_does_nothing_until_it_goes_on(machine: Machine) -> None:
    machine.start(COUNTS)
    machine.until(lambda: machine.printed() > 3)
    assert isinstance(machine.suspend(), Done)
    assert machine.driver.calls() == ["lock", "checkpoint"]
    (user,) = machine.driver.users()
    # One that waits for the disk is stopped once that has answered.
    machine.until(lambda: (found := process(user)) is not None and found.state == "T")
    before = machine.printed()
    assert isinstance(machine.resume(), Done)
    assert machine.driver.calls() == ["lock", "checkpoint", "restore", "unlock"]
    machine.until(lambda: machine.printed() > before)
    assert machine.driver.users() == [user]
    machine.stop()


def test_what_runs_beside_a_task_leaves_the_devices_too(machine: Machine) -> None:
    machine.start(COUNTS)
    session = open_session(machine.data, "7", 1, 0, ("sh", "-c", COUNTS))
    machine.until(lambda: len(machine.driver.users()) == 2)
    assert isinstance(machine.suspend(), Done)
    assert [machine.driver.state(user) for user in machine.driver.users()] == [2, 2]
    assert isinstance(machine.resume(), Done)
    assert [machine.driver.state(user) for user in machine.driver.users()] == [0, 0]
    session.close()
    machine.stop()


def test_who_comes_to_use_cuda_while_others_are_moved_leaves_the_devices_too(machine: Machine) -> None:
    machine.driver.slow("lock", 1_000)
    late = f"until [ -e $FAKE_CUDA/calls ]; do sleep 0.02; done; {COUNTS}"
    machine.start(f"sh -c '{late}' & {COUNTS}")
    assert isinstance(machine.suspend(), Done)
    assert [machine.driver.state(user) for user in machine.driver.users()] == [2, 2]
    machine.stop()


def test_all_processes_of_a_gang_are_locked_before_any_is_checkpointed(machine: Machine) -> None:
    machine.start(COUNTS, COUNTS)
    machine.suspend()
    assert machine.driver.calls() == ["lock", "lock", "checkpoint", "checkpoint"]
    machine.stop()


def test_processes_that_do_not_use_cuda_are_frozen_and_nothing_else(machine: Machine) -> None:
    machine.start("while :; do sleep 0.02; done")
    assert isinstance(machine.suspend(), Done)
    assert machine.driver.calls() == []
    assert all(each.state == "T" for each in descendants(machine.shepherd()))
    machine.stop()


def test_other_devices_of_the_node_take_the_place_of_the_old_ones(machine: Machine) -> None:
    machine.start(COUNTS)
    machine.suspend()
    assert isinstance(machine.resume(1), Done)
    assert machine.driver.calls()[2] == "restore 0a>1b"
    assert AttemptFolder(str(machine.data / "jobs" / "7" / "1")).gang()[0]["devices"] == [1]
    machine.suspend()
    machine.resume(0)
    assert machine.driver.calls()[6] == "restore 1b>0a"
    machine.stop()


def test_one_that_cannot_be_locked_leaves_the_whole_gang_running(machine: Machine) -> None:
    machine.start(COUNTS, COUNTS)
    machine.driver.fail("lock", 600)
    failed = machine.suspend()
    assert isinstance(failed, Failed)
    assert "CUDA_ERROR_NOT_READY" in failed.reason
    assert [machine.driver.state(pid) for pid in machine.driver.users()] == [0, 0]
    before = machine.printed()
    machine.until(lambda: machine.printed() > before)
    machine.stop()


def test_one_whose_memory_cannot_be_moved_is_unlocked_again_and_the_reason_is_told(machine: Machine) -> None:
    machine.start(COUNTS, COUNTS)
    machine.driver.fail("checkpoint", 801)
    failed = machine.suspend()
    assert isinstance(failed, Failed)
    assert "CUDA_ERROR_NOT_SUPPORTED" in failed.reason
    assert [machine.driver.state(pid) for pid in machine.driver.users()] == [0, 0]
    machine.driver.fail("checkpoint", 0)
    assert isinstance(machine.suspend(), Done)
    machine.stop()


def test_memory_that_does_not_come_back_ends_the_attempt_and_says_why(machine: Machine) -> None:
    machine.start(COUNTS)
    machine.suspend()
    machine.driver.fail("restore", 801)
    failed = machine.resume()
    assert isinstance(failed, Failed)
    assert "it could not go on: cuCheckpointProcessRestore" in failed.reason
    machine.until(lambda: process(machine.driver.users()[0]) is None)


def test_a_mover_that_is_killed_between_lock_and_checkpoint_leaves_nobody_locked(machine: Machine) -> None:
    machine.start(COUNTS)
    machine.driver.slow("checkpoint", 60_000)
    machine.backend.carry_out(Suspend(machine._id(), host_mb=1024), 0)
    machine.until(lambda: "checkpoint" in machine.driver.calls())
    (mover,) = [
        each.pid for each in descendants(machine.shepherd()) if "device_memory" in " ".join(arguments(each.pid))
    ]
    (machine.driver.folder / "slow-checkpoint").unlink()
    os.kill(mover, signal.SIGKILL)
    failed = machine.hear(lambda event: isinstance(event, Failed))
    assert isinstance(failed, Failed)
    assert "signal SIGKILL" in failed.reason
    assert machine.driver.calls()[-1] == "unlock"
    before = machine.printed()
    machine.until(lambda: machine.printed() > before)
    machine.stop()


def test_a_backend_that_is_gone_between_lock_and_checkpoint_finds_the_attempt_suspended(
    machine: Machine, tmp_path: Path
) -> None:
    machine.start(COUNTS)
    machine.driver.slow("checkpoint", 500)
    suspend = Suspend(machine._id(), host_mb=1024)
    machine.backend.carry_out(suspend, 0)
    machine.until(lambda: "lock" in machine.driver.calls())
    machine.backend.close()
    machine.backend = LocalBackend(machine.yard, lambda _: machine.job)
    machine.backend.adopt((Adopted("7", 1, (suspend,)),), 0)
    machine.hear(lambda event: event == Done(suspend.id))
    assert isinstance(machine.resume(), Done)
    machine.stop()


def test_a_machine_that_begins_no_process_any_more_is_told_as_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "posix_spawn", refuse)
    before = signal.getsignal(signal.SIGCHLD)
    loop, heard = Loop(lambda: None), list[SwapOutcome]()
    try:
        swap = Swap(loop)
        swap.begin({"do": "out", "of": 0}, heard.append)
        loop.turn()
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)
    assert heard == [{"ok": False, "reason": f"device memory cannot be moved now: {os.strerror(errno.EAGAIN)}"}]
    assert swap.pid == 0


def test_a_suspended_attempt_is_known_to_the_backend_that_comes_after(machine: Machine) -> None:
    machine.start(COUNTS)
    machine.suspend()
    machine.backend.close()
    machine.backend = LocalBackend(machine.yard, lambda _: machine.job)
    machine.backend.adopt((Adopted("7", 1),), 0)
    before = machine.printed()
    assert isinstance(machine.resume(), Done)
    machine.until(lambda: machine.printed() > before)
    machine.stop()


def test_a_process_that_dies_while_it_is_suspended_ends_the_attempt_at_once(machine: Machine) -> None:
    machine.start(COUNTS, COUNTS)
    machine.suspend()
    began_s = time.monotonic()
    os.kill(machine.driver.users()[0], signal.SIGKILL)
    ended = machine.hear(lambda event: isinstance(event, AttemptEnded))
    assert isinstance(ended, AttemptEnded)
    assert ended.outcome is Outcome.FAILED
    assert time.monotonic() - began_s < machine.job.grace_ms / 1000


def test_a_process_that_dies_while_it_is_locked_ends_the_attempt(machine: Machine) -> None:
    machine.start(COUNTS, COUNTS)
    machine.driver.slow("checkpoint", 1_000)
    machine.backend.carry_out(Suspend(machine._id(), host_mb=1024), 0)
    machine.until(lambda: "checkpoint" in machine.driver.calls())
    os.kill(machine.driver.users()[0], signal.SIGKILL)
    ended = machine.hear(lambda event: isinstance(event, AttemptEnded))
    assert isinstance(ended, AttemptEnded)
    assert ended.outcome is Outcome.FAILED


def test_one_that_is_stopped_while_its_memory_is_moved_does_not_wait_for_the_driver(machine: Machine) -> None:
    machine.start(COUNTS)
    machine.driver.slow("checkpoint", 60_000)
    machine.backend.carry_out(Suspend(machine._id(), host_mb=1024), 0)
    machine.until(lambda: "checkpoint" in machine.driver.calls())
    began_s = time.monotonic()
    assert isinstance(machine.stop(), Done)
    assert time.monotonic() - began_s < machine.job.grace_ms / 1000 / 2


def test_a_suspended_attempt_is_stopped_without_waiting_for_its_grace(machine: Machine) -> None:
    machine.start("trap '' TERM; " + COUNTS)
    machine.suspend()
    began_s = time.monotonic()
    assert isinstance(machine.stop(), Done)
    assert time.monotonic() - began_s < machine.job.grace_ms / 1000 / 2


def test_where_there_is_no_driver_the_offer_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_CUDA_DRIVER", str(tmp_path / "none.so"))
    offer = local_offer(Yard(tmp_path))
    assert "there is no NVIDIA driver here" in offer.lacks[Capability.SUSPEND_FREES_MEMORY]
    assert offer.suspend is None


def test_a_driver_that_is_too_old_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_CUDA_DRIVER", "libm.so.6")
    offer = local_offer(Yard(tmp_path))
    assert "older than 570" in offer.lacks[Capability.SUSPEND_FREES_MEMORY]


def test_with_a_driver_the_offer_says_how_fast_memory_moves(tmp_path: Path, driver: FakeDriver) -> None:
    assert local_offer(Yard(tmp_path)).suspend == FIRST


def test_rates_are_learned_from_what_was_measured_and_outlive_the_server(tmp_path: Path) -> None:
    rates = Rates(tmp_path)
    for _ in range(40):
        rates.learn("out", 10_000, 1_000)
        rates.learn("in", 10_000, 500)
    learned = Rates(tmp_path).read()
    assert learned.out_mb_per_s == pytest.approx(10_000, rel=0.01)
    assert learned.in_mb_per_s == pytest.approx(20_000, rel=0.01)
    rates.learn("out", 3, 1_000)
    assert Rates(tmp_path).read() == learned


def test_a_torn_file_of_rates_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "suspend-rates.json").write_text('{"out_mb_per_s": "fast"}')
    assert Rates(tmp_path).read() == FIRST
    assert SuspendRates(1, 1) != FIRST


def test_who_comes_next_waits_until_the_memory_of_who_rests_has_left() -> None:
    sent: list[tuple[Key, Message]] = []
    turns = Turns(100, lambda key, message: sent.append((key, message)), leave_memory=True)
    for name in ("a", "b"):
        turns.join((name, 1), {"places": [["n0", 0]], "beside": "", "memory_mb": 500})
    sent.clear()
    Machine.until(lambda: turns.look() or sent)
    assert [(key[0], message["do"], message.get("over_mb")) for key, message in sent] == [("a", "rest", 500)]
    turns.rests(("a", 1))
    assert [(key[0], message["do"]) for key, message in sent[1:]] == [("b", "go on")]


class SupposedSwap:
    """Stands for the process that moves memory: it goes out always, and in where there `is_room`."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.begun: list[object] = []
        self.is_room = False
        self.pid = 0

    def begin(self, order: dict[str, object], on_done: Callable[[SwapOutcome], None]) -> None:
        self.begun.append(order["do"])
        self.pid = 1

        def done() -> None:
            self.pid = 0
            on_done(SwapOutcome(ok=order["do"] == "out" or self.is_room, reason="out of memory", mb=500, ms=1))

        self._loop.after(1, done)


def test_who_finds_no_room_after_a_rest_tries_again_until_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another may have stayed on the devices since the host had no room for its memory."""
    for name, value in (("freeze", lambda spared: None), ("thaw", lambda: None), ("BETWEEN_TRIES_MS", 1)):
        monkeypatch.setattr(rest, name, value)
    before = signal.getsignal(signal.SIGCHLD)
    try:
        loop, runs = Loop(lambda: None), True
        swap = SupposedSwap(loop)
        boundary = Boundary(loop, AttemptFolder(str(tmp_path)), lambda: ())
        resting = rest.Rest(loop, boundary, cast(Swap, swap), lambda: (), lambda: None, lambda: runs)

        def turn_until(what: Callable[[], bool]) -> None:
            while not what():
                loop.turn()

        resting.begin(60_000, over_mb=100)
        turn_until(lambda: bool(resting))
        resting.end()
        assert swap.begun == ["out", "in"]
        # A rest that is asked for while it tries comes once that has failed; nothing is on the devices to be moved.
        resting.begin(60_000, over_mb=100)
        turn_until(lambda: bool(resting))
        assert swap.begun == ["out", "in"]
        resting.end()
        turn_until(lambda: len(swap.begun) >= 4)
        # Suspended meanwhile, it leaves the devices to who has them.
        runs = False
        turn_until(lambda: not swap.pid)
        tried = len(swap.begun)
        for _ in range(5):
            loop.turn()
        assert len(swap.begun) == tried
        runs = swap.is_room = True
        turn_until(lambda: len(swap.begun) > tried and not swap.pid)
        assert not resting
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)


def test_device_memory_is_told_of_the_attempt_whose_process_has_taken_it(machine: Machine) -> None:
    machine.start(COUNTS)
    taken = {machine.driver.users()[0]: 700, os.getpid(): 50}
    meter = Meter(lambda: taken)
    shepherds = {machine.shepherd(): ("7", 1)}
    assert meter.news(shepherds) == {("7", 1): 700}
    taken[machine.driver.users()[0]] = 710
    assert meter.news(shepherds) == {}
    taken[machine.driver.users()[0]] = 900
    assert meter.news(shepherds) == {("7", 1): 900}
    machine.stop()
