"""Ranks that keep their memory when others fail: real processes, gloo, and the weights of the undisturbed run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import Launch, launching
from training import FAULTS, Trained, by_step

STEPS = 12
WARM = ("--nproc-per-node", "4", "--standby", "4", "--preload", "torch,torch.distributed,phalanx.train.elastic.elastic")

pytestmark = pytest.mark.needs("torch")


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    with launching(tmp_path) as launch:
        launch.kind = Trained
        yield launch


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the weights that four ranks come to."""
    with launching(tmp_path_factory.mktemp("undisturbed")) as launch:
        launch.kind = Trained
        assert launch(f"train({STEPS})", *WARM).wait() == 0
        return digest(launch)


def digest(launch: Launch) -> str:
    """The one that all ranks came to."""
    (found,) = {note["digest"] for note in launch.notes("ended")}
    return str(found)


def pids(launch: Launch) -> dict[int, list[int]]:
    """The processes that were each rank, in order."""
    found: dict[int, list[int]] = {}
    for note in launch.notes("began"):
        found.setdefault(note["rank"], []).append(note["pid"])
    return found


def none_lost_or_twice(launch: Launch) -> bool:
    """Whether each step counts, and once on each rank."""
    found = by_step(launch)
    once = all(len({note["rank"] for note in notes}) == len(notes) for notes in found.values())
    return once and sorted(found) == list(range(STEPS))


@pytest.mark.parametrize(
    ("victim", "when"),
    [(2, "at(step): step == 5 and kill_once(2)"), (0, "before_vote(step): step == 5 and kill_once(0)")],
    ids=["before the collective", "rank 0, which holds the store, before its vote"],
)
def test_one_rank_of_four_is_killed_and_three_go_on_in_their_processes(
    launch: Launch, undisturbed: str, victim: int, when: str
) -> None:
    launched = launch(f"{FAULTS}\ndef {when}\ntrain({STEPS})", *WARM)
    assert launched.wait() == 0, launched.errors()
    assert [len(pids(launch)[rank]) for rank in range(4)] == [2 if rank == victim else 1 for rank in range(4)]
    assert none_lost_or_twice(launch)
    assert digest(launch) == undisturbed
    assert "3 of 4 go on in their processes" in launched.errors()
    assert f"3 of 4 have kept their memory; rank {victim} takes it from rank" in launched.errors()


def test_a_rank_with_an_error_of_its_own_tries_the_step_again_in_its_process(launch: Launch, undisturbed: str) -> None:
    program = f"{FAULTS}\ndef at(step): step == 5 and fail_once(1)\ntrain({STEPS})"
    launched = launch(program, *WARM, "--max-restarts", "0")
    assert launched.wait() == 0, launched.errors()
    assert [len(found) for found in pids(launch).values()] == [1] * 4
    assert none_lost_or_twice(launch)
    assert digest(launch) == undisturbed
    assert "all ranks go on in place at step 5" in launched.errors()


def test_a_job_that_is_told_to_end_saves_and_goes_on_from_there(launch: Launch, undisturbed: str) -> None:
    waits = "def at(step): step == 5 and until(lambda: os.path.exists(os.environ['PHALANX_NOTICE_FILE']))"
    first = launch(f"{waits}\ntrain({STEPS})", *WARM)
    launch.until(lambda: len(by_step(launch).get(4, [])) == 4, "four steps")
    first.process.send_signal(signal.SIGTERM)
    assert first.wait() == 143
    second = launch(f"train({STEPS})", *WARM)
    assert second.wait() == 0, second.errors()
    assert "state that was saved at step 6" in second.errors()
    assert none_lost_or_twice(launch)
    assert launch.notes("ended")[-1]["digest"] == undisturbed


def test_after_a_failure_that_ends_the_job_those_that_are_left_save_and_the_next_start_goes_on(
    launch: Launch, undisturbed: str
) -> None:
    program = f"{FAULTS}\ndef at(step): step == 5 and kill_once(2)\ntrain({STEPS})"
    first = launch(program, *WARM, "--max-restarts", "0")
    assert first.wait() == 1
    second = launch(f"train({STEPS})", *WARM)
    assert second.wait() == 0, second.errors()
    assert "state that was saved at step 5" in second.errors()
    assert none_lost_or_twice(launch)
    assert launch.notes("ended")[-1]["digest"] == undisturbed


STORE_DIES = """
import socket, stat

def end_store():
    # Nothing listens at its port any more, in either direction: what is there in its place answers nothing.
    nothing = os.open(os.devnull, os.O_RDWR)
    for each in map(int, os.listdir("/proc/self/fd")):
        try:
            if stat.S_ISSOCK(os.fstat(each).st_mode):
                with socket.socket(fileno=os.dup(each)) as found:
                    is_stores = found.getsockname()[1:2] == (int(os.environ["MASTER_PORT"]),)
                if is_stores:
                    os.dup2(nothing, each)
        except OSError:
            continue

def at(step):
    rank = int(os.environ["RANK"])
    if step != 5 or not is_first(rank):
        return
    if rank == 0:
        end_store()
        note("store ended")
    if rank == 1:
        until(lambda: notes("store ended"))
        raise RuntimeError("bad luck")
"""
"""The store of the world is gone for good, while all its ranks live; then they need it."""


def test_when_the_store_of_a_world_is_gone_for_good_its_ranks_go_on_in_another_with_their_memory(
    launch: Launch, undisturbed: str
) -> None:
    launched = launch(f"{FAULTS}{STORE_DIES}train({STEPS})", *WARM, "--hang-timeout", "2")
    assert launched.wait() == 0, launched.errors()
    assert [len(found) for found in pids(launch).values()] == [1] * 4
    assert none_lost_or_twice(launch)
    assert digest(launch) == undisturbed
    assert "4 of 4 go on in their processes" in launched.errors()
