"""The GPT whose training the checkpoint benchmarks disturb: 1.14 billion parameters, AdamW in float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


@dataclass(frozen=True, slots=True)
class Size:
    """How large the model and its batches are."""

    vocabulary: int
    context: int
    width: int
    heads: int
    layers: int
    batch: int


BILLION = Size(vocabulary=50_304, context=1024, width=2304, heads=18, layers=16, batch=8)
TINY = Size(vocabulary=512, context=32, width=64, heads=2, layers=2, batch=2)


class Block(nn.Module):
    """Attention and a perceptron."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.norm_in, self.norm_mid = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.mix(self.norm_in(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm_mid(x))))


class Gpt(nn.Module):
    """Tokens to the loss; the scores share their weights with the embedding."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.places = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList([Block(size) for _ in range(size.layers)])
        self.norm = nn.LayerNorm(size.width)
        # Changed by every forward pass: what a snapshot must not catch halfway.
        self.register_buffer("seen", torch.zeros(size.width))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens[:, :-1]) + self.places.weight[: tokens.shape[1] - 1]
        self.seen += x.detach().float().mean((0, 1))
        for block in self.blocks:
            x = block(x)
        scores = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten())


class Training:
    """Model, optimiser and data on one device."""

    def __init__(self, size: Size, device: torch.device) -> None:
        torch.manual_seed(0)
        self.size, self.device = size, device
        with torch.device(device):
            self.model = Gpt(size)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=device.type == "cuda")
        self._batches = torch.randint(size.vocabulary, (16, size.batch, size.context + 1), device=device)
        self._count = 0

    def step(self) -> torch.Tensor:
        """One step; the loss stays on the device, so that the processor runs ahead as it does in real trainings."""
        tokens = self._batches[self._count % len(self._batches)]
        self._count += 1
        with torch.autocast(self.device.type, torch.bfloat16):
            loss = self.model(tokens)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    @property
    def parts(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer}

    def state_dict(self) -> dict[str, Any]:
        """The same state, as torch's own ways of saving take it."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    @property
    def parameter_count(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
