"""The audit of a storm finds what must not happen."""

from __future__ import annotations

from typing import Any

from phalanx.bench.launch.audit import counted, epochs_with_two_worlds

BATCH = 4


def note(event: str, step: int, epoch: int, rank: int, size: int, pid: int, **facts: Any) -> dict[str, Any]:
    who = {"phalanx_epoch": epoch, "rank": rank, "world_size": size, "pid": pid}
    return {"event": event, "step": step, **who, "data_epoch": 0, **facts}


def whole(step: int, epoch: int, size: int) -> list[dict[str, Any]]:
    """A step that a world of so many ranks computes, and that counts on all of them."""
    batch = range(step * BATCH, step * BATCH + BATCH)
    computed = [note("computed", step, epoch, rank, size, rank, samples=[*batch[rank::size]]) for rank in range(size)]
    return computed + [note("counts", step, epoch, rank, size, rank) for rank in range(size)]


def test_steps_of_whole_worlds_count_once() -> None:
    found = counted([*whole(0, 1, 2), *whole(1, 2, 3)], 2, BATCH)
    assert (found.steps, found.missing, found.twice, found.by_a_part) == (2, [], [], [])
    assert set(found.samples.values()) == {1}
    assert len(found.samples) == 2 * BATCH


def test_a_step_that_counts_in_two_worlds_is_found() -> None:
    assert counted([*whole(0, 1, 2), *whole(0, 2, 1)], 1, BATCH).twice == [0]


def test_a_step_that_counts_without_one_of_its_world_is_found() -> None:
    assert counted([each for each in whole(0, 1, 3) if each["rank"] != 2], 1, BATCH).by_a_part == [0]


def test_a_step_that_no_rank_counts_is_found() -> None:
    assert counted(whole(1, 1, 2), 2, BATCH).missing == [0]


def test_an_epoch_of_two_worlds_or_of_a_minority_is_found() -> None:
    good = [["epoch 1: ranks 0 to 0 of 2", "epoch 2: ranks 0 to 0 of 2"], ["epoch 1: ranks 1 to 1 of 2"]]
    assert epochs_with_two_worlds(good, least=2) == []
    assert epochs_with_two_worlds([*good, ["epoch 2: ranks 0 to 0 of 2"]], least=2) == [2]
    assert epochs_with_two_worlds([*good, ["epoch 1: ranks 2 to 2 of 3"]], least=2) == [1]
    assert epochs_with_two_worlds([["epoch 1: ranks 0 to 0 of 1"]], least=2) == [1]
