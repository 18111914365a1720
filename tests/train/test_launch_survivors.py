"""Ranks that keep their memory: only those that failed are started again, whatever becomes of the world."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launching import Launch, launching
from processes import free_port

KEEP = """
from phalanx.train.launch import handover
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
handover.declare()
note("declared")
epoch = handover.newest().epoch
def keep():
    global epoch
    while not os.path.exists(until):
        newest = handover.newest()
        if newest.epoch != epoch:
            epoch = newest.epoch
            os.environ.update(newest.variables)
            note("went on", is_failure=newest.is_failure)
        if restarts or epoch > 1:
            beat(epoch)
        time.sleep(0.02)
"""
"""A program that goes on in whatever world it is handed, until it is let go."""


HANG = ("--nproc-per-node", "2", "--hang-timeout", "2")


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    with launching(tmp_path) as launch:
        yield launch


def nodes(most: str, port: int) -> tuple[str, ...]:
    return ("--nnodes", most, "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", "lease=5,last_call_timeout=1")


def members(launch: Launch) -> dict[int, dict[int, int]]:
    """The process that is each rank, by epoch."""
    found: dict[int, dict[int, int]] = {}
    for note in [*launch.notes("declared"), *launch.notes("went on")]:
        found.setdefault(note["epoch"], {})[note["rank"]] = note["pid"]
    return found


def whole(launch: Launch, size: int, after: int = 0) -> tuple[int, dict[int, int]]:
    """Waits for a world of that size in a later epoch; which it is, and its processes."""

    def newest() -> Any:
        epoch = max(members(launch), default=0)
        there = members(launch).get(epoch, {})
        return (epoch, there) if epoch > after and sorted(there) == list(range(size)) else None

    launch.until(newest, f"a world of {size}")
    found: tuple[int, dict[int, int]] = newest()
    return found


def test_a_rank_that_is_killed_is_started_again_and_the_others_go_on(launch: Launch) -> None:
    launched = launch(KEEP + "keep()", "--nproc-per-node", "3")
    _, before = whole(launch, 3)
    os.kill(before[1], signal.SIGKILL)
    _, after = whole(launch, 3, after=1)
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1] != before[1]
    assert [note["is_failure"] for note in launch.notes("went on")] == [True, True]
    launch.let_go()
    assert launched.wait() == 0
    assert "rank 1 on 127.0.0.1: ended by SIGKILL); 2 of 3 go on in their processes" in launched.errors()


def test_a_rank_that_hangs_is_replaced_and_the_others_go_on(launch: Launch) -> None:
    program = """
beat(1)
if rank == 1 and restarts == 0:
    signal.pause()
time.sleep(0)  # all_reduce(gradients)
keep()
"""
    launched = launch(KEEP.replace("time.sleep(0.02)", "time.sleep(0.02)  # wait()") + program, *HANG)
    _, before = whole(launch, 2)
    _, after = whole(launch, 2, after=1)
    assert after[0] == before[0]
    assert after[1] != before[1]
    launch.let_go()
    assert "rank 1 on 127.0.0.1: no progress" in launched.errors()


def test_a_rank_that_has_not_declared_is_started_again_with_the_one_that_failed(launch: Launch) -> None:
    launched = launch(KEEP + "if rank == 2:\n    handover.withdraw()\nnote('decided')\nkeep()", "--nproc-per-node", "3")
    _, before = whole(launch, 3)
    launch.until(lambda: len(launch.notes("decided")) == 3, "rank 2 withdraws")
    os.kill(before[1], signal.SIGKILL)
    _, after = whole(launch, 3, after=1)
    assert after[0] == before[0]
    assert not {after[1], after[2]} & set(before.values())
    launch.let_go()
    assert launched.wait() == 0


def test_ranks_of_the_agents_that_stay_keep_their_memory_when_one_is_lost_and_one_joins(launch: Launch) -> None:
    port = free_port()
    agents = [launch(KEEP + "keep()", *nodes("2:3", port)) for _ in range(3)]
    epoch, before = whole(launch, 3)
    first = agents[0].process
    first.kill()
    epoch, shrunk = whole(launch, 2, after=epoch)
    assert set(shrunk.values()) < set(before.values())
    launch(KEEP + "keep()", *nodes("2:3", port))
    epoch, grown = whole(launch, 3, after=epoch)
    assert set(shrunk.values()) < set(grown.values())
    assert [note["is_failure"] for note in launch.notes("went on")] == [True, True, False, False]
    launch.let_go()


def test_a_world_with_too_few_agents_waits_with_its_memory(launch: Launch) -> None:
    port = free_port()
    agents = [launch(KEEP + "keep()", *nodes("2", port)) for _ in range(2)]
    epoch, before = whole(launch, 2)
    last = next(agent for agent in agents if "waits for others" not in agent.errors())
    last.process.kill()
    launch(KEEP + "keep()", *nodes("2", port))
    _, after = whole(launch, 2, after=epoch)
    assert after[0] == before[0]
    assert after[1] != before[1]
    launch.let_go()


def test_a_spare_agent_takes_the_place_of_one_that_is_lost_and_the_others_keep_their_memory(launch: Launch) -> None:
    port = free_port()
    agents = [launch(KEEP + "keep()", *nodes("2", port)) for _ in range(3)]
    epoch, before = whole(launch, 2)
    launch.until(lambda: [each for each in agents if "has its 2 agents already" in each.errors()], "a spare")
    (lost,) = [each for each in agents if "epoch 1: ranks 1 to 1 of 2" in each.errors()]
    lost.process.kill()
    _, after = whole(launch, 2, after=epoch)
    assert after[0] == before[0]
    assert after[1] != before[1]
    launch.let_go()
    assert sorted(agent.wait() for agent in agents) == [-signal.SIGKILL, 0, 0]


def test_waiting_for_an_agent_for_longer_than_a_hang_may_take_costs_no_memory(launch: Launch) -> None:
    port, hang_s, quiet = free_port(), 1.0, launch.folder / "out.quiet"
    program = KEEP.replace("if restarts or epoch > 1:", "if not os.path.exists(out + '.quiet'):") + "keep()"
    options = (*nodes("2", port), "--hang-timeout", str(hang_s))
    agents = [launch(program, *options) for _ in range(2)]
    epoch, before = whole(launch, 2)
    first, last = sorted(agents, key=lambda agent: "waits for others" not in agent.errors())
    last.process.kill()
    launch.until(lambda: "gathering" in first.errors(), "too few agents")
    # As ranks are that wait for a world.
    quiet.touch()
    until = time.monotonic() + 3 * hang_s
    launch.until(lambda: time.monotonic() > until, "more than a hang may take")
    quiet.unlink()
    launch(program, *options)
    _, after = whole(launch, 2, after=epoch)
    assert after[0] == before[0]
    launch.let_go()
    assert "no progress" not in first.errors()
