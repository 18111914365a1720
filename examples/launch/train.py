"""A small training for `phalanx launch`, over gloo. It survives its ranks, and ends alike on any number of them.

phalanx launch --nproc-per-node 2 -- python examples/launch/train.py --folder run
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from phalanx.train.checkpoint import Checkpointer, Host, Shared
from phalanx.train.data import Ledger, LedgerSampler, Shuffled

BATCH = 12


def main(folder: str, steps: int, dies_at: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    inputs = torch.randn(120, 8, dtype=torch.float64)
    dataset = TensorDataset(torch.arange(120), inputs, inputs.sum(dim=1, keepdim=True))
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)

    ledger = Ledger(Shuffled(len(dataset), seed=7), global_batch=BATCH)
    sampler = LedgerSampler(ledger)
    loader = DataLoader(dataset, batch_sampler=sampler)
    state = {"model": model, "optimizer": optimizer, "data": ledger}
    with Checkpointer(state, [Host(every=5), Shared(folder, every=20)]) as checkpointer:
        checkpointer.load()
        while checkpointer.completed < steps:
            for numbers, features, targets in loader:
                gradients = torch.zeros(len(dataset), sum(p.numel() for p in model.parameters()), dtype=torch.float64)
                for number, feature, target in zip(numbers, features, targets, strict=True):
                    gradients[number] = gradient_of(model, feature, target)
                update(model, optimizer, gradients)
                ledger.commit()
                if not checkpointer.step():
                    return
                if rank == world_size - 1 and checkpointer.completed == dies_at:
                    die_once()
                if checkpointer.completed == steps:
                    break
        if rank == 0:
            print(f"{steps} steps, {steps * BATCH} samples, weights {digest(model)}")  # noqa: T201
    dist.destroy_process_group()


def gradient_of(model: torch.nn.Module, feature: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Of one sample, as one row."""
    loss = (model(feature) - target).square().mean() / BATCH
    return torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(model.parameters()))])


def update(model: torch.nn.Module, optimizer: torch.optim.Optimizer, gradients: torch.Tensor) -> None:
    """Adds up gradients sample by sample, in the same order on any number of ranks: so weights are equal to the bit."""
    dist.all_reduce(gradients)
    total = torch.zeros_like(gradients[0])
    for each in gradients:
        total += each
    parameters = list(model.parameters())
    for parameter, gradient in zip(parameters, total.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = gradient.view_as(parameter).clone()
    optimizer.step()


def die_once() -> None:
    """Kills this rank, unless it was started again."""
    if os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
        os.kill(os.getpid(), signal.SIGKILL)


def digest(model: torch.nn.Module) -> str:
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()[:16]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default="run", help="where it saves")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--dies-at", type=int, default=0, help="the step after which the last rank kills itself, once")
    given = parser.parse_args()
    main(given.folder, given.steps, given.dies_at)
