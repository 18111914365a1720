"""One rank's part of one tensor."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Piece:
    """A box cut out of the tensor `fqn`: where it lies in the whole, and the tensor that holds it.

    Of a part that several ranks hold alike, each rank's copy carries its number in `replica` (0 ≤ replica < replicas).
    Exactly one of the copies is written; which one follows from the name, so that ranks agree without talking and
    the copies of many tensors are written by different ranks.
    """

    fqn: str
    global_shape: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    dtype: torch.dtype
    tensor: torch.Tensor
    replica: int = 0
    replicas: int = 1

    def __post_init__(self) -> None:
        if not len(self.global_shape) == len(self.offsets) == len(self.sizes):
            raise ValueError(
                f"{self.fqn}: shape {self.global_shape}, offsets {self.offsets} and sizes {self.sizes} differ in rank"
            )
        if any(
            o < 0 or n < 0 or o + n > g for o, n, g in zip(self.offsets, self.sizes, self.global_shape, strict=True)
        ):
            raise ValueError(
                f"{self.fqn}: a piece of {self.sizes} at {self.offsets} lies outside the tensor of {self.global_shape}"
            )
        if tuple(self.tensor.shape) != self.sizes:
            raise ValueError(f"{self.fqn}: the tensor has shape {tuple(self.tensor.shape)}, the piece has {self.sizes}")
        if self.tensor.dtype != self.dtype:
            raise ValueError(f"{self.fqn}: the tensor is {self.tensor.dtype}, the piece {self.dtype}")
        if not 0 <= self.replica < self.replicas:
            raise ValueError(f"{self.fqn}: replica {self.replica} of {self.replicas}")

    @classmethod
    def whole(cls, fqn: str, tensor: torch.Tensor, replica: int = 0, replicas: int = 1) -> Piece:
        """A tensor that is not cut."""
        shape = tuple(tensor.shape)
        return cls(fqn, shape, (0,) * len(shape), shape, tensor.dtype, tensor, replica, replicas)

    @property
    def nbytes(self) -> int:
        return math.prod(self.sizes) * self.dtype.itemsize

    @property
    def is_written(self) -> bool:
        """Whether this rank's copy is the one that goes to a shared store. An empty piece never does."""
        return self.nbytes > 0 and zlib.crc32(f"{self.fqn}{self.offsets}".encode()) % self.replicas == self.replica
