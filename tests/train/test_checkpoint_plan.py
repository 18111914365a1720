"""A plan that was remembered is the one that would be made anew, whatever was done to the state in between."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import free_port, run_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from phalanx.train.checkpoint.contents.rng import RngState
from phalanx.train.checkpoint.contents.state import Planned, State
from phalanx.train.checkpoint.host.segment import Segment
from phalanx.train.checkpoint.host.slot import Record, Slot, slot_bytes
from phalanx.train.checkpoint.snapshots.arrangement import DATA_OFFSET, Arrangement
from phalanx.train.checkpoint.snapshots.moves import cut_of, moves_of, stretches
from phalanx.train.checkpoint.snapshots.snapshot import HostCopier, Sitting


class Net(nn.Module):
    """Parameters, a tied one, one that is missing, buffers of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4, bias=False)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 3)
        self.tied = nn.Linear(3, 4, bias=False)
        self.tied.weight = self.first.weight
        self.register_buffer("passing", torch.zeros(2), persistent=False)
        self.register_buffer("seen", torch.zeros(2))


class Counting(nn.Module):
    """With state that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.count = 3

    def get_extra_state(self) -> int:
        return self.count

    def set_extra_state(self, state: int) -> None:
        self.count = state


class Training:
    """What is changed between two plans."""

    def __init__(self, model: nn.Module | None = None) -> None:
        self.model = model or Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.tensor = torch.arange(5.0)
        self.state = State(
            {"model": self.model, "optimizer": self.optimizer, "tensor": self.tensor, "rng": RngState()}, rank=0
        )

    def step(self) -> None:
        for parameter in self.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        self.optimizer.step()


def seen(planned: Planned) -> list[Any]:
    """All that a snapshot takes from a plan: where each tensor goes, and which memory it lies in."""
    plan, tensors = planned
    where = [(each.data_ptr(), tuple(each.shape), each.stride(), each.dtype) for each in tensors]
    return [plan.fingerprint, plan.calm, plan.names, list(plan.arrangement), where]


def replace_a_moment(training: Training) -> None:
    state = next(iter(training.optimizer.state.values()))
    state["exp_avg"] = state["exp_avg"].clone()


def change_data(training: Training) -> None:
    training.model.last.weight.data = training.model.last.weight.data.clone()


def change_type_in_place(training: Training) -> None:
    weight = training.model.last.weight
    weight.data = weight.data.view(torch.int32).view(torch.float32).view(torch.bfloat16)[:, ::2]


def change_shape_in_place(training: Training) -> None:
    training.model.last.bias.data = training.model.last.bias.data.view(3, 1)


def rename(training: Training) -> None:
    model = training.model
    weight = model.last.bias
    del model.last.bias
    model.last.register_parameter("offset", weight)


def replace_a_module(training: Training) -> None:
    training.model.last = nn.Linear(4, 3)


def remove_a_module(training: Training) -> None:
    del training.model.tied


def untie(training: Training) -> None:
    training.model.tied.weight = nn.Parameter(torch.zeros(4, 3))


def make_a_buffer_pass(training: Training) -> None:
    training.model._non_persistent_buffers_set.add("seen")


def add_a_group(training: Training) -> None:
    training.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    training.step()


def forget_a_moment(training: Training) -> None:
    training.optimizer.state.pop(training.model.last.weight)


def swap_keys_of_moments(training: Training) -> None:
    state = training.optimizer.state[training.model.last.weight]
    state["exp_avg"], state["exp_avg_sq"] = state["exp_avg_sq"], state["exp_avg"]


def count_steps_in_numbers(training: Training) -> None:
    for state in training.optimizer.state.values():
        state["step"] = int(state["step"])


def cast(training: Training) -> None:
    training.model.to(torch.bfloat16)


def add_a_hook(training: Training) -> None:
    def leave_out(module: nn.Module, state: dict[str, Any], prefix: str, meta: Any) -> None:
        del state[f"{prefix}seen"]

    training.model._register_state_dict_hook(leave_out)


def share_with_other_ranks(training: Training) -> None:
    keys = [(piece.fqn, piece.offsets, piece.sizes) for piece in training.state.pieces()]
    training.state.share([keys, keys], 0)


CHANGES: list[Callable[[Training], None]] = [
    Training.step,
    replace_a_moment,
    change_data,
    change_type_in_place,
    change_shape_in_place,
    rename,
    replace_a_module,
    remove_a_module,
    untie,
    make_a_buffer_pass,
    add_a_group,
    forget_a_moment,
    swap_keys_of_moments,
    count_steps_in_numbers,
    cast,
    add_a_hook,
    share_with_other_ranks,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_after_a_change_the_plan_is_what_it_would_be_without_a_memory(change: Callable[[Training], None]) -> None:
    training = Training()
    training.step()
    before = seen(training.state.planned())
    assert before == seen(training.state.planned_anew())
    change(training)
    planned = training.state.planned()
    assert seen(planned) == seen(training.state.planned_anew())
    assert training.state.objects_by(planned.plan.names).keys() == training.state.objects().keys()


def test_the_plan_is_kept_while_only_values_change() -> None:
    training = Training()
    training.step()
    plan = training.state.planned().plan
    training.step()
    assert training.state.planned().plan is plan


def test_before_the_first_step_there_are_no_moments_and_afterwards_they_are_planned() -> None:
    training = Training()
    before = len(training.state.planned().tensors)
    training.step()
    assert seen(training.state.planned()) == seen(training.state.planned_anew())
    assert len(training.state.planned().tensors) > before


def test_a_module_with_state_of_its_own_is_planned_anew_each_time_and_keeps_it() -> None:
    training = Training(Counting())
    training.state.planned()
    training.model.count = 4
    planned = training.state.planned()
    assert seen(planned) == seen(training.state.planned_anew())
    assert training.state.objects_by(planned.plan.names)["model._extra_state"] == 4


def test_a_remembered_plan_holds_no_tensor_so_that_training_can_free_its_memory() -> None:
    training = Training()
    training.step()
    training.state.planned()
    state = training.optimizer.state[training.model.last.weight]
    moment = weakref.ref(state["exp_avg"].untyped_storage())
    state["exp_avg"] = state["exp_avg"].clone()
    gc.collect()
    assert moment() is None


def plan_shards(rank: int, port: int) -> tuple[bool, bool, bool]:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(model.parameters())
    state = State({"model": model, "optimizer": optimizer}, rank)

    def step() -> None:
        model(torch.randn(4, 5)).square().mean().backward()
        optimizer.step()

    step()
    first = state.planned()
    step()
    again = state.planned()
    kept = again.plan is first.plan
    alike = seen(again) == seen(state.planned_anew())
    # Within a forward pass FSDP2 has whole parameters in place of its shards.
    model.unshard()
    unsharded = seen(state.planned()) == seen(state.planned_anew())
    dist.destroy_process_group()
    return kept, alike, unsharded


def test_plans_of_sharded_tensors_are_remembered_too() -> None:
    assert run_ranks(plan_shards, 2, (free_port(),), 120) == [(True, True, True)] * 2


def slot_for(arrangement: Arrangement) -> Slot:
    fd = os.memfd_create("slot")
    os.ftruncate(fd, slot_bytes(arrangement.data_bytes, 1 << 16))
    return Slot(Segment("own-0", fd))


def plain_copy(planned: Planned) -> dict[str, torch.Tensor]:
    """What a slot holds after the plain copy, tensor by tensor."""
    plan, tensors = planned
    slot = slot_for(plan.arrangement)
    slot.begin(1, 0, plan.arrangement.data_bytes)
    record = Record(1, 0, 1, plan.arrangement, {})
    HostCopier().begin(Sitting(tensors, slot, record, plan.calm, False, lambda: None))
    return {piece.fqn: piece.tensor for piece in slot.pieces(slot.record())}


@pytest.mark.parametrize("scratch_bytes", [0, 512, 1536, 4096, 1 << 20])
@pytest.mark.parametrize("pin_bytes", [1 << 30, 4096 + 640])
@pytest.mark.parametrize(("on_host", "calm"), [(0, 10), (6, 10), (6, 6), (23, 23)])
def test_copies_by_way_of_the_scratch_put_every_byte_where_the_plain_copy_puts_it(
    scratch_bytes: int, pin_bytes: int, on_host: int, calm: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx.train.checkpoint.snapshots.moves.PIN_BYTES", pin_bytes)
    # The largest tensors go by themselves.
    monkeypatch.setattr("phalanx.train.checkpoint.snapshots.moves.BATCH_BYTES_MAX", 1000)
    training = Training(nn.Sequential(nn.Linear(33, 9), nn.BatchNorm1d(9), nn.Linear(9, 70)))
    training.step()
    training.model[0].weight.data = training.model[0].weight.data.t().contiguous().t()
    plan, tensors = training.state.planned()
    truth = plain_copy(Planned(plan, list(tensors)))
    slot = slot_for(plan.arrangement)
    end = DATA_OFFSET + plan.arrangement.data_bytes
    scratch = torch.full([min(scratch_bytes, plan.arrangement.data_bytes)], 77, dtype=torch.uint8)
    on_device = [number >= on_host for number in range(len(tensors))]
    cut = cut_of(plan.arrangement, on_device, scratch.numel())
    moves = moves_of(plan.arrangement, on_device, calm, slot, scratch, cut)
    for leg in (moves.on_host, moves.staged_hasty, moves.staged_calm, moves.direct_hasty, moves.direct_calm):
        leg.run(tensors)
    for start, stop in stretches(cut, end):
        slot.segment.bytes[start:stop].copy_(scratch[start - cut : stop - cut])
    for entry, kept in zip(plan.arrangement, slot.tensors(plan.arrangement), strict=True):
        assert torch.equal(kept, truth[entry.fqn]), entry.fqn


def test_a_record_of_very_many_tensors_has_room_in_its_slot() -> None:
    training = Training(nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(30_000)]))
    arrangement = training.state.planned().plan.arrangement
    packed = len(arrangement.packed)
    assert slot_bytes(arrangement.data_bytes, packed) > DATA_OFFSET + arrangement.data_bytes + packed
