"""How a training job is cut over devices: tensor, pipeline and data parallel, and what the cuts send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Member = TypeVar("Member")


@dataclass(frozen=True, slots=True)
class ParallelPlan:
    """A mesh of `tp × pp × dp` ranks; rank `(d * pp + p) * tp + t` is tensor rank t of stage p of replica d."""

    tp: int = 1
    pp: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp"):
            _require_count("parallel", name, getattr(self, name))

    @property
    def world_size(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def group_count(self) -> int:
        """The number of TP groups."""
        return self.pp * self.dp

    def rank(self, d: int, p: int, t: int) -> int:
        return (d * self.pp + p) * self.tp + t

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """The tensor rank, stage and replica of a rank: the other way round than `rank`."""
        group, t = divmod(rank, self.tp)
        d, p = divmod(group, self.pp)
        return t, p, d

    def tp_groups(self, members: Sequence[Member]) -> list[list[Member]]:
        """The `pp * dp` groups of `tp` that all-reduce activations, in rank order."""
        self._require_world(members)
        return [list(members[first : first + self.tp]) for first in range(0, self.world_size, self.tp)]

    def pp_stages(self, members: Sequence[Member]) -> list[list[Member]]:
        """The `pp` stages, each with its `tp * dp` members of all replicas."""
        groups = self.tp_groups(members)
        return [[member for group in groups[p :: self.pp] for member in group] for p in range(self.pp)]

    def dp_replicas(self, members: Sequence[Member]) -> list[list[Member]]:
        """The `dp` replicas, each with the `tp * pp` members that hold one copy of the model."""
        self._require_world(members)
        size = self.tp * self.pp
        return [list(members[first : first + size]) for first in range(0, self.world_size, size)]

    def dp_groups(self, members: Sequence[Member]) -> list[list[Member]]:
        """The `tp * pp` groups of `dp` peers that all-reduce gradients: same stage and tensor rank."""
        self._require_world(members)
        size = self.tp * self.pp
        return [list(members[first::size]) for first in range(size)]

    def _require_world(self, members: Sequence[Member]) -> None:
        if len(members) != self.world_size:
            raise ValueError(
                f"parallel: tp={self.tp} pp={self.pp} dp={self.dp} needs {self.world_size} devices in rank order, "
                f"got {len(members)}"
            )


@dataclass(frozen=True, slots=True)
class Traffic:
    """The sizes from which a step's communication follows."""

    hidden_dim: int = 4096
    seq_len: int = 2048
    micro_batch_size: int = 1
    num_params_billions: float = 70.0
    dtype_bytes: int = 2
    layers: int = 1
    micro_batches: int = 1

    def __post_init__(self) -> None:
        for name in ("hidden_dim", "seq_len", "micro_batch_size", "dtype_bytes", "layers", "micro_batches"):
            _require_count("traffic", name, getattr(self, name))
        params = self.num_params_billions
        # Written so that NaN, which fails every comparison, is refused too.
        if isinstance(params, bool) or not isinstance(params, int | float) or not 0 <= params < float("inf"):
            raise ValueError(
                f"traffic: num_params_billions must be a finite number of at least 0, got {self.num_params_billions!r}"
            )

    @property
    def activation_bytes(self) -> int:
        """The activations of one micro-batch at the border between two layers."""
        return self.micro_batch_size * self.seq_len * self.hidden_dim * self.dtype_bytes

    @property
    def gradient_bytes(self) -> float:
        """The gradients of the whole model."""
        return self.num_params_billions * 1e9 * self.dtype_bytes


def _require_count(owner: str, name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{owner}: {name} must be a whole number of at least 1, got {value!r}")
