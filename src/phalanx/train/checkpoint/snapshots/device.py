"""A copy of the state beside the state itself, for errors that the trainer survives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.snapshots.snapshot import copy_all


class DeviceCopy:
    """The last copy. It takes as much device memory as the state, and milliseconds."""

    def __init__(self) -> None:
        self.step: int | None = None
        self._tensors: list[torch.Tensor] = []
        self._objects: dict[str, Any] = {}

    @property
    def objects(self) -> dict[str, Any]:
        return self._objects

    def take(self, step: int, tensors: Sequence[torch.Tensor], objects: dict[str, Any]) -> None:
        """Copies, in the order of the stream that training runs on."""
        same = len(tensors) == len(self._tensors) and all(
            (held.shape, held.dtype, held.device) == (tensor.shape, tensor.dtype, tensor.device)
            for held, tensor in zip(self._tensors, tensors, strict=True)
        )
        self.step = None
        if not same:
            self._tensors = [torch.empty_like(tensor, requires_grad=False) for tensor in tensors]
        copy_all(self._tensors, tensors, non_blocking=True)
        self._objects = objects
        self.step = step

    def fill(self, pieces: Sequence[Piece]) -> None:
        """Copies back."""
        copy_all([piece.tensor for piece in pieces], self._tensors, non_blocking=True)
