"""States cut over ranks, by FSDP2, by tensor parallelism and by both, through the checkpointer and back."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import free_port, run_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from phalanx.bench.checkpoint.drill import fork_background
from phalanx.train.checkpoint import Checkpointer, Host, Peer, Shared, background

Full = dict[str, bytes]
"""Tensors in full, as they can be sent to the test."""

NEVER = 1 << 30
SPLIT = {"0": ColwiseParallel(), "2": RowwiseParallel()}


def cut(layout: str) -> nn.Module:
    """A model, cut over all ranks as `layout` says."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3, bias=False), nn.LayerNorm(3))
    world_size = dist.get_world_size()
    if layout == "fsdp":
        return fully_shard(model, mesh=init_device_mesh("cpu", (world_size,)))
    if layout == "tp":
        return parallelize_module(model, init_device_mesh("cpu", (world_size,)), SPLIT)
    mesh = init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("outer", "inner"))
    if layout == "replicated fsdp":
        return fully_shard(model, mesh=mesh)
    parallelize_module(model, mesh["inner"], SPLIT)
    return fully_shard(model, mesh=mesh["outer"])


def whole(model: nn.Module, optimizer: torch.optim.Optimizer) -> Full:
    """Parameters and moments, put together."""
    tensors = dict(model.named_parameters())
    for name, parameter in list(tensors.items()):
        tensors |= {f"{name}.{key}": value for key, value in optimizer.state[parameter].items()}
    put = {name: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor for name, tensor in tensors.items()}
    return {name: tensor.detach().numpy().tobytes() for name, tensor in put.items()}


def join(rank: int, world_size: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), PHALANX_MACHINE=f"machine-{rank}")
    background.start_process = fork_background  # type: ignore[assignment]
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.randn(4, 5)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def train_and_save(rank: int, world_size: int, port: int, layout: str, folder: str) -> Full:
    join(rank, world_size, port)
    model = cut(layout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    tiers = [Host(every=NEVER), Shared(folder, every=NEVER)]
    with Checkpointer({"model": model, "optimizer": optimizer}, tiers, job=folder, signals=()) as checkpointer:
        for _ in range(2):
            one_step(model, optimizer)
            checkpointer.step()
        checkpointer.save()
        saved = whole(model, optimizer)
    dist.destroy_process_group()
    return saved


def load(rank: int, world_size: int, port: int, layout: str, folder: str) -> tuple[int, str, Full]:
    join(rank, world_size, port)
    model = cut(layout)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    with Checkpointer({"model": model, "optimizer": optimizer}, [Shared(folder)], job=folder, signals=()) as loading:
        loaded = loading.load()
        assert loaded is not None
        found = whole(model, optimizer)
        assert optimizer.param_groups[0]["lr"] == 0.01
        one_step(model, optimizer)
    dist.destroy_process_group()
    return loaded.step, loaded.tier, found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("fsdp", 2), ("tp", 2)),
        (("fsdp and tp", 4), ("fsdp", 3)),
        (("replicated fsdp", 4), ("fsdp", 1)),
        (("tp", 2), ("fsdp and tp", 4)),
    ],
)
def test_what_one_layout_saved_another_loads_bit_by_bit(
    tmp_path: Path, before: tuple[str, int], after: tuple[str, int]
) -> None:
    folder = str(tmp_path / "run")
    layout, ranks = before
    saved = run_ranks(train_and_save, ranks, (ranks, free_port(), layout, folder), 200)[0]
    layout, ranks = after
    answers = run_ranks(load, ranks, (ranks, free_port(), layout, folder), 200)
    for step, tier, found in answers:
        assert (step, tier) == (2, "shared")
        assert found == saved


def lose_one_after_the_other(rank: int, port: int, job: str) -> list[tuple[str, int, int, bool]]:
    """Each rank's memory is lost in turn, with no snapshot in between."""
    join(rank, 3, port)
    model = cut("fsdp")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    tiers = [Host(every=NEVER), Peer(copies=2, every=NEVER)]
    answers = []
    with Checkpointer({"model": model, "optimizer": optimizer}, tiers, job=job, signals=()) as checkpointer:
        model(torch.randn(4, 5)).square().mean().backward()
        assert checkpointer._station.pace.is_busy, "gradients travel, so copies wait"
        optimizer.step()
        assert not checkpointer._station.pace.is_busy
        checkpointer.step()
        checkpointer.save()
        checkpointer.wait()
        saved = whole(model, optimizer)
        for lost in range(3):
            dist.barrier()
            if rank == lost:
                for slot in checkpointer._station.memory.holdings:
                    slot.clear()
            for parameter in model.parameters():
                nn.init.zeros_(parameter)
            dist.barrier()
            loaded = checkpointer.load()
            assert loaded is not None
            checkpointer.wait()
            answers.append((loaded.tier, loaded.step, loaded.bytes_read, whole(model, optimizer) == saved))
        assert checkpointer.describe()["replicated_step"] == 1
    dist.destroy_process_group()
    return answers


def test_copies_that_a_lost_machine_held_are_made_anew_at_once() -> None:
    """Otherwise the second machine to be lost would take the only copy with it."""
    by_rank: list[Any] = run_ranks(lose_one_after_the_other, 3, (free_port(), f"test-{uuid.uuid4()}"), 200)
    for rank, answers in enumerate(by_rank):
        assert answers == [("peer" if rank == lost else "host", 1, 0, True) for lost in range(3)]
