"""Ranks that meet although the network fails for a moment."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
from processes import free_port, run_ranks

from phalanx.train.elastic.group import Group


def meets_after_a_loss(rank: int, loser: int, port: int) -> float:
    """Each rank brings its number; the loser's first word to the store fails."""
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    group = Group(20.0)
    next_round = group._next_round

    def fails_once(begins: bool) -> int:
        group._next_round = next_round  # type: ignore[method-assign]
        raise RuntimeError("timed out")

    if rank == loser:
        group._next_round = fails_once  # type: ignore[method-assign]
    assert group.meet(lambda: False, is_own_failure=False)
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    dist.barrier()
    group.close()
    return float(total.item())


@pytest.mark.parametrize("loser", [0, 1])
def test_a_rank_that_lost_the_store_for_a_moment_comes_again(loser: int) -> None:
    assert run_ranks(meets_after_a_loss, 2, (loser, free_port()), 60) == [1.0, 1.0]
