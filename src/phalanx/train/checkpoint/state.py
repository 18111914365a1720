"""The state of a training: everything that must come back, as pieces and small values."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint.optimizer import OptimizerPart
from phalanx.train.checkpoint.parts import Kind, ModulePart, Part, PlainPart, Stateful, TensorPart
from phalanx.train.checkpoint.piece import Piece

Key = tuple[str, tuple[int, ...], tuple[int, ...]]
"""What makes two pieces the same part of the same tensor: name, offsets, sizes."""


class State:
    """Named parts, seen as one. Modules, optimisers, tensors, and anything with state_dict and load_state_dict."""

    def __init__(self, parts: Mapping[str, Any], rank: int = 0) -> None:
        if not parts:
            raise PhalanxError("there is no state to keep: give the checkpointer at least a model")
        bare = {name: unwrapped(part) for name, part in parts.items()}
        self._modules = {name: part for name, part in bare.items() if isinstance(part, torch.nn.Module)}
        self._parts = [_part(name, part, self._modules, rank) for name, part in bare.items()]
        self.optimizers = [part for part in bare.values() if isinstance(part, torch.optim.Optimizer)]
        self._copies: dict[Key, tuple[int, int]] = {}

    def pieces(self) -> list[Piece]:
        """This rank's parts of all tensors, where they lie; last those that a forward pass may change."""
        pieces = [piece_of(name, tensor) for part in self._parts for name, tensor in part.tensors()]
        guarded = self.guarded()
        pieces.sort(key=lambda piece: storage_of(piece.tensor) not in guarded)
        return [self._numbered(piece) for piece in pieces] if self._copies else pieces

    def objects(self) -> dict[str, Any]:
        """All small values, copied."""
        return {name: value for part in self._parts for name, value in part.objects().items()}

    def share(self, holders: Sequence[Sequence[Key]], rank: int) -> None:
        """Learns which ranks hold the same parts, so that each is written by one of them."""
        by_key: dict[Key, list[int]] = {}
        for holder, keys in enumerate(holders):
            for key in keys:
                by_key.setdefault(key, []).append(holder)
        own = set(holders[rank])
        self._copies = {key: (ranks.index(rank), len(ranks)) for key, ranks in by_key.items() if key in own}

    def prepare(self, saved: Mapping[str, Kind]) -> list[Piece]:
        """The pieces to be filled, once the tensors that were saved and do not exist yet have been made."""
        for part in self._parts:
            part.prepare(saved)
        return self.pieces()

    def accept(self, objects: Mapping[str, Any]) -> None:
        """Takes the small values, when the pieces have been filled."""
        for part in self._parts:
            part.accept(objects)

    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameters of all modules, in order."""
        return [parameter for module in self._modules.values() for parameter in module.parameters()]

    def guarded(self) -> frozenset[int]:
        """The storages that change only from `optimizer.step` on: parameters, and what optimisers remember of them.

        Buffers are not among them, since the forward pass may change them.
        """
        if not self.optimizers:
            return frozenset()
        moments = [
            value
            for optimizer in self.optimizers
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor)
        ]
        return frozenset(storage_of(tensor) for tensor in [*self.parameters(), *moments])

    def _numbered(self, piece: Piece) -> Piece:
        replica, replicas = self._copies.get(key_of(piece), (0, 1))
        return replace(piece, replica=replica, replicas=replicas)


def unwrapped(part: Any) -> Any:
    """The module inside the wrappers of data parallelism and the compiler, which would change the names."""
    while isinstance(part, torch.nn.Module):
        if isinstance(part, torch.nn.parallel.DistributedDataParallel):
            part = part.module
        elif hasattr(part, "_orig_mod"):
            part = part._orig_mod
        else:
            break
    return part


def storage_of(tensor: torch.Tensor) -> int:
    """Where a tensor's bytes begin; of a distributed tensor, those of this rank."""
    local = local_of(tensor) if is_distributed(tensor) else tensor
    return local.untyped_storage().data_ptr()


def is_distributed(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a DTensor. Where their module was never loaded, which takes a second, none is."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_of(tensor: Any) -> torch.Tensor:
    """This rank's part of a distributed tensor."""
    with torch.no_grad():
        local: torch.Tensor = tensor.to_local()
    return local


def key_of(piece: Piece) -> Key:
    return piece.fqn, piece.offsets, piece.sizes


def fingerprint(pieces: Sequence[Piece]) -> str:
    """The same for equal layouts: which parts of which tensors, in which order."""
    text = repr([(*key_of(piece), piece.global_shape, str(piece.dtype)) for piece in pieces])
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def piece_of(name: str, tensor: Any) -> Piece:
    """This rank's part of a tensor; a tensor that is not distributed is a part by itself."""
    if not is_distributed(tensor):
        return Piece.whole(name, tensor.detach())
    if any(placement.is_partial() for placement in tensor.placements):
        raise PhalanxError(f"{name} holds sums that are not added up yet ({tensor.placements}): redistribute it first")
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    local = local_of(tensor)
    sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return Piece(name, tuple(tensor.shape), tuple(offsets), tuple(sizes), local.dtype, local)


def _part(name: str, part: Any, modules: Mapping[str, torch.nn.Module], rank: int) -> Part:
    if isinstance(part, torch.nn.Module):
        return ModulePart(name, part)
    if isinstance(part, torch.optim.Optimizer):
        return OptimizerPart(name, part, modules)
    if isinstance(part, torch.Tensor):
        return TensorPart(name, part)
    if isinstance(part, Stateful):
        return PlainPart(name, part, rank)
    raise PhalanxError(f"{name}: a {type(part).__name__} has no state_dict and load_state_dict, so it cannot be kept")
