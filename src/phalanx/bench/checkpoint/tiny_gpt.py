"""A GPT so small that a step takes milliseconds, trained data-parallel: what the drills kill and bring back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F  # noqa: N812

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 61, 16, 32, 2, 3
BATCH = 4

Reached = Callable[[str], None]
"""Told each point of a step as it is reached."""


class Block(nn.Module):
    """Attention and a perceptron, with dropout, so that the generators matter."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.mix = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.mix(self.norms[0](x)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.out(mixed)
        onward: torch.Tensor = self.mlp(self.norms[1](x))
        return x + onward


class TinyGpt(nn.Module):
    """Tokens to the next token's scores."""

    def __init__(self, reached: Reached) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.scores = nn.Linear(WIDTH, VOCABULARY, bias=False)
        # Changed by every forward pass: what a snapshot must not catch halfway. The same on every rank, as buffers are.
        self.register_buffer("seen", torch.zeros(CONTEXT))
        self._reached = reached

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        seen: torch.Tensor = self.get_buffer("seen")
        seen += len(tokens)
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for number, block in enumerate(self.blocks):
            if number == 1:
                self._reached("in-forward")
                x.register_hook(self._in_backward)
            x = block(x)
        scores: torch.Tensor = self.scores(self.norm(x))
        return scores

    def _in_backward(self, gradient: torch.Tensor) -> None:
        self._reached("in-backward")


class DrilledAdamW(torch.optim.AdamW):
    """AdamW that says when it has changed one group of parameters and not yet the next."""

    def __init__(self, model: nn.Module, reached: Reached) -> None:
        parameters = list(model.parameters())
        half = len(parameters) // 2
        groups: list[dict[str, Any]] = [
            {"params": parameters[:half]},
            {"params": parameters[half:], "weight_decay": 0.2},
        ]
        super().__init__(groups, lr=3e-3)
        self._reached = reached

    def _init_group(self, group: dict[str, Any], *rest: Any) -> Any:
        if group is self.param_groups[1]:
            self._reached("in-optimizer")
        return super()._init_group(group, *rest)  # type: ignore[no-untyped-call]


class Cursor:
    """How far the data has been read."""

    def __init__(self) -> None:
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]

    def take(self, seed: int, rank: int, world_size: int) -> torch.Tensor:
        """This rank's share of the next samples."""
        generator = torch.Generator().manual_seed(1_000_003 * seed + self.position * world_size + rank)
        self.position += 1
        return torch.randint(VOCABULARY, (BATCH, CONTEXT + 1), generator=generator)


class Training:
    """Model, optimiser, schedule and data of one rank."""

    def __init__(self, seed: int, rank: int, world_size: int, reached: Reached) -> None:
        torch.manual_seed(seed)
        self.seed, self.rank, self.world_size, self._reached = seed, rank, world_size, reached
        self.model = TinyGpt(reached)
        self.optimizer = DrilledAdamW(self.model, reached)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 100)
        self.cursor = Cursor()
        # Ranks see other data and draw other masks.
        torch.manual_seed(seed * 1000 + rank)

    def step(self) -> float:
        """One step: forward, backward, all-reduce, optimiser."""
        self._reached("before-forward")
        tokens = self.cursor.take(self.seed, self.rank, self.world_size)
        scores = self.model(tokens[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._all_reduce()
        self._reached("before-optimizer")
        self.optimizer.step()
        self.schedule.step()
        return loss.item()

    def digest(self) -> str:
        """SHA-256 over parameters, buffers, both moments, counters, learning rates, generator and data position."""
        found = hashlib.sha256()
        for value in self.model.state_dict().values():
            found.update(value.numpy().tobytes())
        for group in self.optimizer.param_groups:
            found.update(repr((group["lr"], group["weight_decay"])).encode())
            for parameter in group["params"]:
                for key in sorted(self.optimizer.state[parameter]):
                    found.update(key.encode() + self.optimizer.state[parameter][key].numpy().tobytes())
        found.update(repr((self.schedule.last_epoch, self.cursor.position)).encode())
        found.update(torch.get_rng_state().numpy().tobytes())
        return found.hexdigest()

    def _all_reduce(self) -> None:
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        if self.world_size > 1:
            work = dist.all_reduce(flat, async_op=True)
            self._reached("in-all-reduce")
            assert work is not None
            work.wait()
        else:
            self._reached("in-all-reduce")
        flat /= self.world_size
        for gradient, reduced in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(reduced.view_as(gradient))
