"""The learning rate of a batch that is scaled when the training is resized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch


class LearningRate:
    """By which factor learning rates are those of the full size; a part of the state."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], schedulers: Sequence[Any]) -> None:
        self._optimizers, self._schedulers = optimizers, schedulers
        self._factor = 1.0

    def state_dict(self) -> dict[str, float]:
        return {"factor": self._factor}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self._factor = float(state["factor"])

    def become(self, factor: float) -> None:
        """Has all learning rates be those of another factor."""
        ratio = factor / self._factor
        if ratio == 1.0:
            return
        self._factor = factor
        for group in (group for optimizer in self._optimizers for group in optimizer.param_groups):
            for name in {"lr", "initial_lr"} & group.keys():
                group[name] *= ratio
        for scheduler in self._schedulers:
            # A schedule without them (on a plateau) changes what the groups have.
            for name in ("base_lrs", "_last_lr"):
                if hasattr(scheduler, name):
                    setattr(scheduler, name, [each * ratio for each in getattr(scheduler, name)])
