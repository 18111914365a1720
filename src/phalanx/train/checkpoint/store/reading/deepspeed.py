"""Checkpoints of DeepSpeed's ZeRO, stages 1 to 3: whole tensors out of the flat partitions of all ranks.

Rank r's file has its partition of every flat group: float32 weights, and what the optimiser remembers of them. In
stages 1 and 2 the partitions of all ranks, end to end, are the parameters end to end; in stage 3 every parameter is cut
among the ranks by itself, its last part filled up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from phalanx.train.checkpoint.store.errors import Corrupt, NoSuchStep, StoreError
from phalanx.train.checkpoint.store.reading.inert import Inert, load_inert

LATEST = "latest"
STATES_FILE = re.compile(r".*_(?:model|optim)_states\.pt")
OPTIMIZER_FILE = re.compile(r"(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")
WEIGHTS = "fp32"
"""What the flat partitions of the weights are called among those of the optimiser."""


@dataclass(frozen=True, slots=True)
class DeepSpeedCheckpoint:
    """Whole tensors and plain values, by the names that a Checkpointer of `model` and `optimizer` gives them."""

    step: int
    tensors: dict[str, torch.Tensor]
    objects: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Partition:
    """What one rank's file holds: its part of each flat group, by what it is of the parameters (`fp32`, `exp_avg`)."""

    stage: int
    flat: Mapping[str, Sequence[torch.Tensor]]
    step: float | None
    groups: Sequence[Mapping[str, Any]]
    paddings: Sequence[Sequence[int]] | None


def holds_deepspeed(folder: Path) -> bool:
    """Whether a folder is one checkpoint of DeepSpeed, or what DeepSpeed keeps them in."""
    return bool(optimizer_files(folder)) or (
        (folder / LATEST).is_file() and bool(optimizer_files(folder / latest(folder)))
    )


def read_deepspeed(folder: Path) -> DeepSpeedCheckpoint:
    """The checkpoint in a folder, or the latest of those in it."""
    if not optimizer_files(folder):
        if not (folder / LATEST).is_file():
            raise NoSuchStep(f"{folder}: there is no ZeRO checkpoint of DeepSpeed (no zero_pp_rank_…_optim_states.pt)")
        folder = folder / latest(folder)
    files = complete(folder, optimizer_files(folder))
    partitions = [partition_of(folder, name) for name in files]
    stage = partitions[0].stage
    prefix = "zero_pp_rank_0_" if stage == 3 else ""
    model = load_inert(folder / f"{prefix}mp_rank_00_model_states.pt")
    refuse_parts(folder, model)
    shapes = model["param_shapes"]
    whole = cut_by_parameter(partitions, shapes) if stage == 3 else cut_end_to_end(folder, partitions, shapes)
    names = [name for group in shapes for name in group]
    tensors = {named(kind, name): value.clone() for kind, name, value in whole}
    for name in model["buffer_names"]:
        tensors[f"model.{name}"] = model["module"][name].clone()
    for copy, original in model["shared_params"].items():
        tensors[f"model.{copy}"] = tensors[f"model.{original}"]
    if partitions[0].step is not None:
        tensors |= {f"optimizer.state.{name}.step": torch.tensor(partitions[0].step) for name in names}
    return DeepSpeedCheckpoint(int(model["global_steps"]), tensors, groups_of(partitions[0], shapes))


def latest(folder: Path) -> str:
    name = (folder / LATEST).read_text("utf-8").strip()
    if "/" in name or name in ("", ".", ".."):
        raise Corrupt(str(folder), [f"{LATEST} names {name!r}, expected one of the folders beside it"])
    return name


def optimizer_files(folder: Path) -> dict[int, str]:
    """The files of the ranks' partitions, by rank."""
    if not folder.is_dir():
        return {}
    found = {each.name: match for each in folder.iterdir() if (match := OPTIMIZER_FILE.fullmatch(each.name))}
    foreign = next((name for name, match in found.items() if int(match[2])), None)
    if foreign is not None:
        raise StoreError(
            f"{folder} was saved with tensor or pipeline parallelism ({foreign}), which is not read; write it with "
            f"DeepSpeed's ds_to_universal.py and load that with DeepSpeed"
        )
    return {int(match[1]): name for name, match in found.items()}


def complete(folder: Path, files: Mapping[int, str]) -> list[str]:
    missing = sorted(set(range(max(files) + 1)) - set(files))
    if missing:
        raise Corrupt(str(folder), [f"the partition of rank {missing[0]} is missing"])
    return [files[rank] for rank in sorted(files)]


def partition_of(folder: Path, name: str) -> Partition:
    saved = load_inert(folder / name)["optimizer_state_dict"]
    stage = int(plain(saved["zero_stage"]))
    ranks = saved["partition_count"]
    ranks = max(ranks) if isinstance(ranks, list) else ranks
    if ranks != len(optimizer_files(folder)):
        raise Corrupt(str(folder), [f"{ranks} ranks saved it and {len(optimizer_files(folder))} partitions are there"])
    key, inner = (
        ("fp32_flat_groups", "optimizer_state_dict")
        if stage == 3
        else (
            "single_partition_of_fp32_groups",
            "base_optimizer_state",
        )
    )
    base = saved[inner]
    if not isinstance(base, Mapping) or "state" not in base:
        raise StoreError(
            f"{folder / name} was saved with elastic_checkpoint or without its optimiser, which is not read"
        )
    groups, states = saved[key], [base["state"][number] for number in sorted(base["state"])]
    moments = [kind for kind, value in states[0].items() if isinstance(value, torch.Tensor) and value.dim()]
    step = states[0].get("step", base["param_groups"][0].get("step"))
    flat = {WEIGHTS: groups, **{kind: [state[kind] for state in states] for kind in moments}}
    return Partition(
        stage, flat, None if step is None else float(step), base["param_groups"], saved.get("param_alignment_paddings")
    )


def plain(value: Any) -> Any:
    """The value of a member of an enum, which is read as an `Inert`."""
    return value.made_of[0] if isinstance(value, Inert) else value


def refuse_parts(folder: Path, model: Mapping[str, Any]) -> None:
    if model.get("frozen_param_shapes"):
        raise StoreError(f"{folder} has frozen parameters, which are not read; unfreeze them before it is saved")
    if model.get("num_experts") not in (None, [], 0, [0]):
        raise StoreError(f"{folder} has experts of their own files (MoE), which are not read")


def cut_end_to_end(
    folder: Path, partitions: Sequence[Partition], shapes: Sequence[Mapping[str, torch.Size]]
) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Stages 1 and 2: each group's partitions end to end, and the parameters one after another in it."""
    paddings = partitions[0].paddings
    for kind in partitions[0].flat:
        for number, group in enumerate(shapes):
            flat = torch.cat([each.flat[kind][number].flatten() for each in partitions])
            at = 0
            for place, (name, shape) in enumerate(group.items()):
                count = math.prod(shape)
                if at + count > flat.numel():
                    raise Corrupt(str(folder), [f"{kind} of group {number} ends before {name}"])
                yield kind, name, flat[at : at + count].reshape(shape)
                at += count + (paddings[number][place] if paddings else 0)


def cut_by_parameter(
    partitions: Sequence[Partition], shapes: Sequence[Mapping[str, torch.Size]]
) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Stage 3: of each parameter a part at every rank, at the same place there."""
    for kind in partitions[0].flat:
        parts = [torch.cat([group.flatten() for group in each.flat[kind]]) for each in partitions]
        at = 0
        for group in shapes:
            for name, shape in group.items():
                each = -(-math.prod(shape) // len(partitions))
                whole = torch.cat([part[at : at + each] for part in parts])
                yield kind, name, whole[: math.prod(shape)].reshape(shape)
                at += each


def named(kind: str, name: str) -> str:
    return f"model.{name}" if kind == WEIGHTS else f"optimizer.state.{name}.{kind}"


def groups_of(partition: Partition, shapes: Sequence[Mapping[str, torch.Size]]) -> dict[str, Any]:
    """The settings of the optimiser's groups that are plain values."""
    objects: dict[str, Any] = {}
    for number, (group, names) in enumerate(zip(partition.groups, shapes, strict=False)):
        for key, value in group.items():
            if key == "params":
                objects[f"optimizer.param_groups.{number}.params"] = list(names)
            elif key != "step" and isinstance(value, bool | int | float | str | tuple | list | None):
                objects[f"optimizer.param_groups.{number}.{key}"] = value
    return objects
