"""The small training that the three scripts share: a GPT of about a million weights that learns to continue text.

Everything that decides the next step is part of the state: weights, both moments of Adam, the learning-rate
schedule, the random generator (dropout draws from it) and the position in the data. `digest` fingerprints all of it,
so that two runs can be compared to the last bit.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

CONTEXT, BATCH = 32, 8
TEXT = (
    "A checkpoint that nobody has tried to load is a hope, not a checkpoint. "
    "What is written last must be what makes it count. "
    "The fastest tier dies first, so the state lives in several. "
)


class Block(nn.Module):
    """Attention to what came before, and a perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """Bytes to scores for the next byte."""

    def __init__(self, width: int = 128, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x))


class Data:
    """Batches of text, and how many of them have been taken. Each rank takes its own."""

    def __init__(self, rank: int = 0, world_size: int = 1) -> None:
        self.rank, self.world_size, self.position = rank, world_size, 0
        self.text = torch.tensor(list((TEXT * 20).encode()))

    def next_batch(self) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self.position * self.world_size + self.rank)
        starts = torch.randint(len(self.text) - CONTEXT - 1, (BATCH,), generator=generator)
        self.position += 1
        return torch.stack([self.text[start : start + CONTEXT + 1] for start in starts])

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class Training:
    """A model, its optimiser, its schedule and its data."""

    def __init__(self, width: int = 128, layers: int = 4) -> None:
        torch.manual_seed(0)
        torch.use_deterministic_algorithms(True)
        self.model = Gpt(width, layers)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=1000)
        self.data = Data()

    def step(self) -> float:
        tokens = self.data.next_batch()
        loss = F.cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.item()

    def digest(self) -> str:
        """A fingerprint of all that decides the next step."""
        sha = hashlib.sha256()
        for name, value in flat({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}):
            sha.update(name.encode())
            sha.update(value.numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value).encode())
        sha.update(repr((self.schedule.last_epoch, self.data.position)).encode())
        sha.update(torch.get_rng_state().numpy().tobytes())
        return sha.hexdigest()[:16]


def flat(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """A nested state as pairs of name and leaf."""
    if isinstance(value, dict):
        return [pair for key, each in value.items() for pair in flat(each, f"{name}.{key}")]
    if isinstance(value, list | tuple):
        return [pair for number, each in enumerate(value) for pair in flat(each, f"{name}.{number}")]
    return [(name, value)]


def arguments(description: str) -> argparse.ArgumentParser:
    """What all three scripts take."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, required=True, help="where checkpoints go")
    parser.add_argument("--steps", type=int, default=60, help="train until so many steps are done (60)")
    parser.add_argument("--every", type=int, default=10, help="save every so many steps (10)")
    parser.add_argument("--die-at", type=int, help="kill this process, as a power cut would, after that step")
    parser.add_argument("--width", type=int, default=128, help="width of the model (128)")
    return parser


def maybe_die(step: int, at: int | None) -> None:
    if step == at:
        print(f"step {step}: killed", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
