"""Two machines of six are lost at once, in every way, with two copies of each snapshot in memory."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import run_ranks

from phalanx.bench.checkpoint.drill import Drill, fork_background
from phalanx.bench.checkpoint.drills import Launcher, Outcome, launcher
from phalanx.bench.checkpoint.tiny_gpt import Training
from phalanx.train.checkpoint import Checkpointer, Host, Peer, RngState, Shared, background
from phalanx.train.checkpoint.copies.replicas import place

RANKS = 6
PAIRS = list(combinations(range(RANKS), 2))
PLACEMENT = place([[rank] for rank in range(RANKS)], 2)
NEVER = 1 << 30


def test_the_formula_says_twelve_of_fifteen() -> None:
    assert PLACEMENT.recovery_probability(2) * len(PAIRS) == 12
    assert sum(PLACEMENT.recovers(pair) for pair in PAIRS) == 12


def lose_every_pair(rank: int, port: int, folder: str) -> list[tuple[str, int, int, int, bool]]:
    """Trains and loses the memory of two ranks, again and again; what came back from where, and whether it is right."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), PHALANX_MACHINE=f"machine-{rank}")
    background.start_process = fork_background  # type: ignore[assignment]
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    training = Training(5, rank, RANKS, lambda point: None)
    state = {
        "model": training.model,
        "optimizer": training.optimizer,
        "schedule": training.schedule,
        "data": training.cursor,
        "rng": RngState(),
    }
    tiers = [Host(every=1), Peer(copies=2, every=1), Shared(folder, every=NEVER)]
    found = []
    with Checkpointer(state, tiers, job=folder, signals=(), timeout_s=120) as checkpointer:
        training.step()
        checkpointer.step()
        checkpointer.wait()
        checkpointer.save()
        checkpointer.wait()
        digests = {1: training.digest()}
        for pair in PAIRS:
            training.step()
            checkpointer.step()
            checkpointer.wait()
            saved = checkpointer.completed
            digests[saved] = training.digest()
            dist.barrier()
            if rank in pair:
                for slot in checkpointer._station.memory.holdings:
                    slot.clear()
            for parameter in training.model.parameters():
                torch.nn.init.normal_(parameter)
            dist.barrier()
            loaded = checkpointer.load()
            assert loaded is not None
            checkpointer.wait()
            is_right = training.digest() == digests[loaded.step]
            found.append((loaded.tier, saved, loaded.step, loaded.bytes_read, is_right))
    dist.destroy_process_group()
    return found


def test_memory_brings_back_what_the_formula_says_and_the_store_the_rest(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    by_rank = run_ranks(lose_every_pair, RANKS, (port, str(tmp_path / uuid.uuid4().hex)), 400)
    from_memory = 0
    for number, pair in enumerate(PAIRS):
        answers = [found[number] for found in by_rank]
        assert all(is_right for *_, is_right in answers), f"{pair}: not the state that was saved"
        tiers = [tier for tier, *_ in answers]
        if PLACEMENT.recovers(pair):
            from_memory += 1
            assert tiers == ["peer" if rank in pair else "host" for rank in range(RANKS)], pair
            assert all(saved == step and bytes_read == 0 for _, saved, step, bytes_read, _ in answers), pair
        else:
            assert [tiers[rank] for rank in pair] == ["shared", "shared"], pair
            assert all(step == 1 for _, _, step, _, _ in answers), pair
    assert from_memory == 12


@pytest.fixture(scope="module")
def drills() -> Iterator[Launcher]:
    with launcher() as started:
        yield started


def drill(folder: Path, **others: Any) -> Drill:
    return Drill(
        str(folder), str(folder), steps=4, host_every=1, durable_every=2, tiers=("host", "peer", "shared"), **others
    )


@pytest.fixture(scope="module")
def unfailed(drills: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return drills.run(drill(tmp_path_factory.mktemp("unfailed")))


@pytest.mark.parametrize(
    ("lost", "tiers", "step"), [((1,), ["host", "peer"], 3), ((0,), ["peer", "host"], 3), ((0, 1), ["shared"] * 2, 2)]
)
def test_a_machine_that_is_replaced_gets_its_part_from_its_peer(
    drills: Launcher, unfailed: Outcome, tmp_path: Path, lost: tuple[int, ...], tiers: list[str], step: int
) -> None:
    outcome = drills.run(drill(tmp_path, kill=f"before-forward@4@{lost[0]}", lose=lost))
    assert outcome.starts == 2
    assert outcome.digests == unfailed.digests
    assert outcome.loaded("tier") == tiers
    assert outcome.loaded("step") == [step] * 2
