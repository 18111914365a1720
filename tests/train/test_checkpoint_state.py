"""Any state, as pieces and small values, and back."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import free_port, run_ranks
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from phalanx.bench.checkpoint.drill import fork_background
from phalanx.errors import PhalanxError
from phalanx.train.checkpoint import Checkpointer, Host, Local, RngState, Shared, background
from phalanx.train.checkpoint.checkpointer import job_name
from phalanx.train.checkpoint.contents.parts import leaves
from phalanx.train.checkpoint.contents.state import State, storage_of


class Net(nn.Module):
    def __init__(self, width: int = 4, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.first = nn.Linear(3, width, dtype=dtype)
        self.norm = nn.BatchNorm1d(width, dtype=dtype)
        self.last = nn.Linear(width, 2, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(self.norm(self.first(x)))
        return scores


def trained(seed: int, steps: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(steps):
        one_step(model, optimizer)
        schedule.step()
    return {"model": model, "optimizer": optimizer, "schedule": schedule, "rng": RngState()}


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.randn(5, 3)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    ours, theirs = State(one), State(other)
    pieces = {piece.fqn: piece.tensor for piece in theirs.pieces()}
    return all(torch.equal(piece.tensor, pieces[piece.fqn]) for piece in ours.pieces()) and len(pieces) == len(
        ours.pieces()
    )


def test_a_fresh_process_gets_all_of_it_back_from_memory() -> None:
    job = f"test-{uuid.uuid4()}"
    before = trained(1, 5)
    saving = Checkpointer(before, [Host(every=1)], job=job, signals=())
    saving.step()
    drawn = (torch.rand(3), random.random())
    saving.leave()
    after = trained(2, 0)
    with Checkpointer(after, [Host(every=1)], job=job, signals=()) as loading:
        loaded = loading.load()
        assert loaded is not None
        assert (loaded.step, loaded.tier, loading.completed) == (1, "host", 1)
        assert equal(before, after)
        assert after["schedule"].last_epoch == before["schedule"].last_epoch
        assert after["optimizer"].param_groups[0]["lr"] == before["optimizer"].param_groups[0]["lr"]
        assert torch.equal(torch.rand(3), drawn[0])
        assert random.random() == drawn[1]


def test_names_are_those_of_torchs_own_checkpoints() -> None:
    parts = trained(1, 2)
    theirs = get_optimizer_state_dict(parts["model"], parts["optimizer"])
    expected = {name for name, value in leaves("optimizer", theirs) if isinstance(value, torch.Tensor)}
    names = {piece.fqn for piece in State(parts).pieces()}
    assert expected <= names
    assert {f"model.{name}" for name in parts["model"].state_dict()} == names - expected
    assert "optimizer.param_groups.0.lr" in State(parts).objects()


def test_moments_keep_their_type_beside_parameters_of_another() -> None:
    model = Net(dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        optimizer.state[parameter]["exp_avg"] = torch.full_like(parameter, 1 / 3, dtype=torch.float32)
    state = State({"model": model, "optimizer": optimizer})
    saved = {piece.fqn: piece for piece in state.pieces()}
    fresh = torch.optim.AdamW(model.parameters())
    kinds = {name: (piece.global_shape, piece.dtype) for name, piece in saved.items()}
    pieces = State({"model": model, "optimizer": fresh}).prepare(kinds)
    assert {piece.fqn: piece.dtype for piece in pieces} == {name: piece.dtype for name, piece in saved.items()}


def test_wrappers_do_not_change_names() -> None:
    model = Net()
    plain = [piece.fqn for piece in State({"model": model}).pieces()]
    assert [piece.fqn for piece in State({"model": torch.compile(model)}).pieces()] == plain


def test_what_a_forward_pass_may_change_comes_last_and_is_not_guarded() -> None:
    parts = trained(1, 2)
    state = State(parts)
    guarded = [storage_of(piece.tensor) in state.guarded() for piece in state.pieces()]
    assert guarded == sorted(guarded, reverse=True)
    loose = [piece.fqn for piece, is_guarded in zip(state.pieces(), guarded, strict=True) if not is_guarded]
    assert loose == ["model.norm.running_mean", "model.norm.running_var", "model.norm.num_batches_tracked"]


def test_what_cannot_be_kept_is_refused_by_name() -> None:
    with pytest.raises(PhalanxError, match="counter: a int has no state_dict"):
        State({"counter": 3})


def test_a_model_of_another_shape_is_refused_by_parameter() -> None:
    job = f"test-{uuid.uuid4()}"
    saving = Checkpointer({"model": Net(4)}, [Host(every=1)], job=job, signals=())
    saving.step()
    saving.leave()
    other = Checkpointer({"model": Net(5)}, [Host(every=1)], job=job, signals=())
    with pytest.raises(PhalanxError, match=r"model\.first\.weight"):
        other.load()
    other.close()


def test_memory_needs_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PHALANX_JOB_ID", raising=False)
    with pytest.raises(PhalanxError, match="needs a name"):
        Checkpointer({"model": Net()}, [Host()])


def test_the_same_relative_path_elsewhere_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PHALANX_JOB_ID", raising=False)
    monkeypatch.chdir(tmp_path)
    assert job_name([Host(), Shared("run")]) == job_name([Local("run")]) == str(tmp_path / "run")
    assert job_name([Shared("s3://bucket/run")]) == "s3://bucket/run"


def sharded_training(
    rank: int, world_size: int, folder: str, port: int, steps: int, job: str
) -> tuple[str | None, list[float]]:
    """An FSDP2 training that loads what there is, goes some steps on, and shows its parameters in full."""
    background.start_process = fork_background  # type: ignore[assignment]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (world_size,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    parts = {"model": model, "optimizer": optimizer}
    with Checkpointer(parts, [Host(every=1), Shared(Path(folder), every=1)], job=job, signals=()) as checkpointer:
        loaded = checkpointer.load()
        for _ in range(steps):
            torch.manual_seed(checkpointer.completed)
            model(torch.randn(4, 5)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            checkpointer.step()
            checkpointer.wait()
    full = [value for parameter in model.parameters() for value in parameter.full_tensor().flatten().tolist()]
    dist.destroy_process_group()
    return (None if loaded is None else f"{loaded.tier} {loaded.step}"), full


def test_a_sharded_training_goes_on_from_the_store_on_fewer_ranks(tmp_path: Path) -> None:
    job = f"test-{uuid.uuid4()}"
    whole = run_ranks(sharded_training, 2, (2, str(tmp_path / "whole"), free_port(), 4, job), 120)
    run_ranks(sharded_training, 2, (2, str(tmp_path / "cut"), free_port(), 2, job), 120)
    rest = run_ranks(sharded_training, 1, (1, str(tmp_path / "cut"), free_port(), 2, job), 120)
    assert rest[0][0] == "shared 2"
    assert rest[0][1] == pytest.approx(whole[0][1], rel=1e-6)
