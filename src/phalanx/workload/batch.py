"""What becomes of the global batch and the learning rate when a training has another number of ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phalanx.workload.gang import Role

VARIABLE = "PHALANX_BATCH"
"""The variable in which ranks find the rule."""


class OnResize(StrEnum):
    """Whether the global batch stays as it is, or every rank's share of it does."""

    CONSTANT = "constant"
    SCALE = "scale"


class LearningRate(StrEnum):
    """How the learning rate follows a batch that is scaled."""

    LINEAR = "linear"
    SQRT = "sqrt"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class BatchRule:
    """`size` samples a step at `full` replicas of the model, which is the most that the gang may have.

    `ranks_each` ranks hold one replica of the model: tp × pp.
    """

    size: int
    full: int
    on_resize: OnResize = OnResize.CONSTANT
    lr: LearningRate = LearningRate.SAME
    ranks_each: int = 1

    def fits(self, replicas: int) -> bool:
        """Whether so many replicas can have equal shares."""
        return self.on_resize is OnResize.SCALE or self.size % replicas == 0

    def size_at(self, replicas: int) -> int:
        """The global batch of so many replicas."""
        return self.size * replicas // self.full if self.on_resize is OnResize.SCALE else self.size

    def lr_factor_at(self, replicas: int) -> float:
        """What to multiply the learning rate of the full size with."""
        match self.lr:
            case LearningRate.LINEAR:
                return replicas / self.full
            case LearningRate.SQRT:
                return sqrt(replicas / self.full)
            case LearningRate.SAME:
                return 1.0

    def text(self) -> str:
        """The rule as a variable: `global=256,full=8,on_resize=scale,lr=linear,ranks_each=1`."""
        return (
            f"global={self.size},full={self.full},on_resize={self.on_resize},lr={self.lr},ranks_each={self.ranks_each}"
        )


def parse_rule(text: str) -> BatchRule:
    """The rule that a variable says; ValueError for anything else."""
    said = dict(pair.partition("=")[::2] for pair in text.split(","))
    try:
        return BatchRule(
            int(said["global"]),
            int(said["full"]),
            OnResize(said["on_resize"]),
            LearningRate(said["lr"]),
            int(said["ranks_each"]),
        )
    except KeyError as error:
        raise ValueError(f"{error} is missing") from None


def replicas_of_model(role: Role, ranks_each: int) -> list[int]:
    """How many replicas of the model a role may hold: a rank for each GPU, or for each task without one."""
    ranks = [count * max(role.task.gpus, 1) for count in range(role.replicas_min, role.replicas_max + 1)]
    return [count // ranks_each for count in ranks if count % ranks_each == 0]


def listed(sizes: Iterable[int]) -> str:
    """`2, 3, 4`; of many the first few and the last."""
    numbers = [str(size) for size in sizes]
    return ", ".join(numbers if len(numbers) <= 8 else [*numbers[:6], "…", numbers[-1]])
