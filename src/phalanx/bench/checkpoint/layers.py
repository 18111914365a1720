"""A training of many equal layers: as many tensors as one likes, of any size."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import torch
from torch import nn

BATCH = 4
TENSORS_A_LAYER = 8
"""Weight and bias, each with two moments and a counter."""


class Size(NamedTuple):
    """How many layers, and how wide they are."""

    layers: int
    width: int

    @property
    def tensors(self) -> int:
        return TENSORS_A_LAYER * self.layers


class Layers:
    """The model, its optimiser, and steps on the device that there is."""

    def __init__(self, size: Size, device: torch.device) -> None:
        torch.manual_seed(0)
        self.device = device
        with torch.device(device):
            self.model = nn.Sequential(*[nn.Linear(size.width, size.width) for _ in range(size.layers)])
            self._inputs = torch.randn(BATCH, size.width)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=device.type == "cuda")

    def step(self) -> None:
        loss = self.model(self._inputs).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    @property
    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer}

    def tensors(self) -> list[torch.Tensor]:
        """Parameters and all that the optimiser remembers of them."""
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        return [*self.model.parameters(), *moments]

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def timed_s(self, work: Any) -> float:
        """How long the calling thread is in a call, with nothing left to do for the device when it begins."""
        self.synchronize()
        began_s = time.monotonic()
        work()
        return time.monotonic() - began_s
