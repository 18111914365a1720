"""The state of a training: everything that must come back, as pieces and small values."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint.contents.optimizer import OptimizerPart
from phalanx.train.checkpoint.contents.parts import Kind, ModulePart, Part, PlainPart, Stateful, TensorPart
from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.snapshots.arrangement import Arrangement, Entry, arrange
from phalanx.train.checkpoint.snapshots.survey import Mark, Survey, locals_of, mark_of

Key = tuple[str, tuple[int, ...], tuple[int, ...]]
"""What makes two pieces the same part of the same tensor: name, offsets, sizes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What snapshots of one layout have in common."""

    arrangement: Arrangement
    fingerprint: str
    calm: int
    """So many of the first entries are copied at once, or are not changed before the next `optimizer.step`."""
    names: Sequence[Sequence[str]]
    """For each part the names that its small values need."""


class Planned(NamedTuple):
    """A plan, and the live tensors in its order."""

    plan: Plan
    tensors: list[torch.Tensor]


class Remembered(NamedTuple):
    """A plan that holds while a survey has the same mark, and the numbers of its tensors in the order of the plan."""

    mark: Mark
    plan: Plan
    order: list[int]


HOLDERS = (torch.nn.Module, torch.optim.Optimizer, torch.Tensor)
"""Parts that hold tensors; all the rest are small values."""


class State:
    """Named parts, seen as one. Modules, optimisers, tensors, and anything with state_dict and load_state_dict."""

    def __init__(self, parts: Mapping[str, Any], rank: int = 0) -> None:
        if not parts:
            raise PhalanxError("there is no state to keep: give the checkpointer at least a model")
        bare = {name: unwrapped(part) for name, part in parts.items()}
        self._modules = {name: part for name, part in bare.items() if isinstance(part, torch.nn.Module)}
        self._parts = [_part(name, part, self._modules, rank) for name, part in bare.items()]
        self.tensor_parts = [name for name, part in bare.items() if isinstance(part, HOLDERS)]
        self.optimizers = [part for part in bare.values() if isinstance(part, torch.optim.Optimizer)]
        self._copies: dict[Key, tuple[int, int]] = {}
        self._remembered: Remembered | None = None

    def pieces(self) -> list[Piece]:
        """This rank's parts of all tensors, where they lie, in the order of snapshots."""
        pieces = self._found()
        return [pieces[number] for number in self._order(pieces)]

    def planned(self) -> Planned:
        """What a snapshot of the live tensors is to look like: worked out anew only where anything but values changed.

        The same as `planned_anew` gives, in a small part of its time.
        """
        survey = self._survey()
        tensors = None if survey is None else locals_of(survey)
        if survey is None or tensors is None:
            return self.planned_anew()
        if self._remembered is None or not self._remembered.mark.fits(survey, tensors):
            self._remembered = self._remember(mark_of(survey, tensors))
        if self._remembered is None:
            return self.planned_anew()
        return Planned(self._remembered.plan, list(map(tensors.__getitem__, self._remembered.order)))

    def planned_anew(self) -> Planned:
        """The plan for the state as it is, whatever it was before."""
        pieces = self.pieces()
        return Planned(self._plan(pieces), [piece.tensor for piece in pieces])

    def objects(self) -> dict[str, Any]:
        """All small values, copied."""
        return self.objects_by([part.names() for part in self._parts])

    def objects_by(self, names: Sequence[Sequence[str]]) -> dict[str, Any]:
        """All small values, copied, by the names that a plan of the same layout has found."""
        found = zip(self._parts, names, strict=True)
        return {name: value for part, each in found for name, value in part.objects(each).items()}

    def share(self, holders: Sequence[Sequence[Key]], rank: int) -> None:
        """Learns which ranks hold the same parts, so that each is written by one of them."""
        by_key: dict[Key, list[int]] = {}
        for holder, keys in enumerate(holders):
            for key in keys:
                by_key.setdefault(key, []).append(holder)
        own = set(holders[rank])
        # The numbers of copies are a part of the plan.
        self._remembered = None
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

    def _survey(self) -> Survey | None:
        """What all parts have found; None where one of them has tensors that cannot be found quickly."""
        keys: list[Any] = []
        tensors: list[torch.Tensor] = []
        for part in self._parts:
            found = part.survey()
            if found is None:
                return None
            keys += found.keys
            tensors += found.tensors
            # Where one part ends and the next begins.
            keys.append(len(tensors))
        return Survey(keys, tensors)

    def _remember(self, mark: Mark) -> Remembered | None:
        """The plan with its mark; None where the survey saw other tensors than the parts name."""
        pieces = self._found()
        addresses = [piece.tensor.data_ptr() for piece in pieces]
        if (addresses, [piece.tensor.shape for piece in pieces]) != (mark.addresses, mark.shapes):
            return None
        order = self._order(pieces)
        return Remembered(mark, self._plan([pieces[number] for number in order]), order)

    def _found(self) -> list[Piece]:
        """The pieces in the order in which the parts name them."""
        pieces = [piece_of(name, tensor) for part in self._parts for name, tensor in part.tensors()]
        return [self._numbered(piece) for piece in pieces] if self._copies else pieces

    def _order(self, pieces: Sequence[Piece]) -> list[int]:
        """The numbers of the pieces: first those in host memory, which are copied at once; of all, guarded ones first.

        What is copied by way of a scratch on the device is then one stretch at the end.
        """
        guarded = self.guarded()

        def place(number: int) -> tuple[bool, bool]:
            tensor = pieces[number].tensor
            return tensor.is_cuda, storage_of(tensor) not in guarded

        return sorted(range(len(pieces)), key=place)

    def _plan(self, pieces: Sequence[Piece]) -> Plan:
        guarded = self.guarded()
        hasty = sum(piece.tensor.is_cuda and storage_of(piece.tensor) not in guarded for piece in pieces)
        names = [part.names() for part in self._parts]
        return Plan(arrange(pieces), fingerprint(pieces), len(pieces) - hasty, names)

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


def key_of(piece: Piece | Entry) -> Key:
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
