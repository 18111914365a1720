"""A copy of the state beside the state itself, for errors that the trainer survives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from phalanx.train.checkpoint.piece import Piece


class DeviceCopy:
    """The last copy. It takes as much device memory as the state, and milliseconds."""

    def __init__(self) -> None:
        self.step: int | None = None
        self._tensors: list[torch.Tensor] = []
        self._objects: dict[str, Any] = {}

    @property
    def objects(self) -> dict[str, Any]:
        return self._objects

    def take(self, step: int, pieces: Sequence[Piece], objects: dict[str, Any]) -> None:
        """Copies, in the order of the stream that training runs on."""
        same = len(pieces) == len(self._tensors) and all(
            held.shape == piece.tensor.shape and held.dtype == piece.dtype
            for held, piece in zip(self._tensors, pieces, strict=True)
        )
        if not same:
            self._tensors = [torch.empty_like(piece.tensor) for piece in pieces]
        self.step = None
        for held, piece in zip(self._tensors, pieces, strict=True):
            held.copy_(piece.tensor, non_blocking=True)
        self._objects = objects
        self.step = step

    def fill(self, pieces: Sequence[Piece]) -> None:
        """Copies back."""
        for held, piece in zip(self._tensors, pieces, strict=True):
            piece.tensor.copy_(held, non_blocking=True)
