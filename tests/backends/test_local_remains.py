"""What a task leaves when its main process ends: writers and what got notice have the grace, all else nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_local_backend import STOP, Bench, until

from phalanx.backends.local.host.processes import process
from phalanx.protocol.action import Stop
from phalanx.protocol.event import Done
from phalanx.workload.job import Kind

GRACE_MS = 20_000
BEGUN = "until [ -e begun ]; do sleep 0.05; done;"
WRITER = "PHALANX_HELPER=writer setsid sh -c '{}' &"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    started = Bench(tmp_path)
    yield started
    started.backend.close()


def begin(bench: Bench, script: str, **job: object) -> None:
    """Starts a shell, and returns when it says that it is ready."""
    bench.start("sh", "-c", script, **{"grace_ms": GRACE_MS, **job})
    until(lambda: "ready" in bench.printed())


def stop(bench: Bench, grace_ms: int = GRACE_MS) -> float:
    """Stops the attempt; how long that takes."""
    began_s = time.monotonic()
    bench.backend.carry_out(Stop(STOP, grace_ms, "preempted"), 0)
    bench.wait(lambda event: event == Done(STOP))
    return time.monotonic() - began_s


def pids(bench: Bench) -> list[int]:
    """What the task's processes have put down of themselves."""
    return [int(each) for each in (bench.data / "jobs" / "7" / "work" / "pids").read_text().split()]


def test_a_training_under_a_shell_that_dies_of_the_notice_has_the_grace_to_save(bench: Bench) -> None:
    training = "trap 'sleep 1; echo saved; exit' TERM; echo ready; while :; do sleep 0.1; done"
    begin(bench, f'sh -c "{training}"; echo never')
    assert stop(bench) < GRACE_MS / 1000 / 2
    assert bench.printed() == "ready\nsaved\n"


LAUNCHER = """
trap 'sleep 1; kill $!; wait; exit' TERM
setsid sh -c 'trap "echo saved; exit" TERM; echo ready; while :; do sleep 0.1; done' &
wait
"""


def test_workers_of_a_launcher_in_sessions_of_their_own_have_it_too(bench: Bench) -> None:
    (bench.data / "launcher").write_text(LAUNCHER)
    begin(bench, f"sh {bench.data}/launcher; echo never")
    assert stop(bench) < GRACE_MS / 1000 / 2
    assert bench.printed() == "ready\nsaved\n"


def test_a_writer_finishes_after_the_notice_and_after_its_trainer(bench: Bench) -> None:
    begin(bench, WRITER.format("touch begun; sleep 1; echo written") + f" {BEGUN} echo ready; exec sleep 1000")
    assert stop(bench) < GRACE_MS / 1000 / 2
    assert bench.printed() == "ready\nwritten\n"


@pytest.mark.parametrize("end", ["exit 0", "exit 3", "kill -9 $$"])
def test_a_writer_finishes_after_a_trainer_that_ended_by_itself(bench: Bench, end: str) -> None:
    begin(bench, WRITER.format("touch begun; sleep 1; echo written") + f" {BEGUN} echo ready; {end}")
    bench.end()
    assert bench.printed() == "ready\nwritten\n"


STUBBORN = """
trap "" TERM
echo $$ >> pids
while :; do sleep 0.1; done
"""


def test_nothing_goes_on_beyond_the_grace(bench: Bench) -> None:
    (bench.data / "stubborn").write_text(STUBBORN)
    stubborn = f"sh {bench.data}/stubborn"
    both_run = "until [ -e pids ] && [ $(wc -l < pids) = 2 ]; do sleep 0.05; done"
    begin(bench, f"{WRITER.format(stubborn)} {stubborn} & {both_run}; echo ready; exec sleep 1000")
    assert 1.0 <= stop(bench, grace_ms=1000) < 10
    assert [process(pid) for pid in pids(bench)] == [None, None]


def test_what_is_no_writer_and_got_no_notice_ends_with_the_main_process(bench: Bench) -> None:
    begin(bench, "setsid sleep 1000 & echo ready; exec sleep 1000")
    assert stop(bench) < GRACE_MS / 1000 / 2


def test_a_writer_of_a_task_that_is_restarted_ends_with_the_grace(bench: Bench) -> None:
    writer = WRITER.format("echo $$ >> pids; exec sleep 1000") + " until [ -e pids ]; do sleep 0.05; done"
    script = f"if [ $PHALANX_TASK_RESTART_COUNT = 0 ]; then {writer}; exit 1; fi; echo ready; exec sleep 1000"
    begin(bench, script, kind=Kind.SERVICE, grace_ms=1500)
    (pid,) = pids(bench)
    assert process(pid) is not None, "it outlives the restart"
    until(lambda: process(pid) is None)
    stop(bench)
