"""A training that ends in the same weights, to the last bit, on any number of ranks: a program for jobs of tests.

`python training.py STEPS STEP_S`. With TRAINING_DIES_AT its last rank kills itself after that step, unless it was
restarted. Each step has as many samples as ever, in parts that any number of ranks share out.
Gradients are gathered part by part and added up in one order, so that who computed which makes no difference.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F  # noqa: N812

from phalanx.train.checkpoint import Checkpointer, Host, Shared

PARTS = 4
WIDTH = 24
SHARED_EVERY = 60
RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "PHALANX_TASK_RESTART_COUNT")


def main(steps: int, step_s: float) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    was_restarted = any(os.environ.get(name, "0") != "0" for name in RESTARTS)
    dies_at = None if was_restarted else int(os.environ.get("TRAINING_DIES_AT", "0"))
    if world_size > 1:
        join(rank, world_size)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)
    tiers = [Host(every=10), Shared(os.environ["PHALANX_CHECKPOINT_DIR"], every=SHARED_EVERY)]
    with Checkpointer({"model": model, "optimizer": optimizer}, tiers) as checkpointer:
        loaded = checkpointer.load()
        where = "nothing" if loaded is None else f"step {loaded.step} from {loaded.tier}"
        say(f"rank {rank} of {world_size} loaded {where}")
        while checkpointer.completed < steps:
            learn(model, optimizer, checkpointer.completed, rank, world_size)
            time.sleep(step_s)
            goes_on = checkpointer.step()
            say(f"rank {rank} did {checkpointer.completed}")
            if rank == world_size - 1 and dies_at == checkpointer.completed:
                checkpointer.wait()
                os.kill(os.getpid(), signal.SIGKILL)
            if not goes_on:
                break
        else:
            say(f"rank {rank} ends with {digest(model)}")
    if world_size > 1:
        dist.destroy_process_group()


def join(rank: int, world_size: int) -> None:
    """Joins the process group. Workers that were restarted must not find there what was left by those before them."""
    is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, world_size, is_master=rank == 0 and not is_agents)
    own = dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
    dist.init_process_group("gloo", store=own, rank=rank, world_size=world_size)


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int, world_size: int) -> None:
    parameters = list(model.parameters())
    gradients = torch.zeros(PARTS, sum(p.numel() for p in parameters), dtype=torch.float64)
    for part in range(rank, PARTS, world_size):
        inputs = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(PARTS * step + part)).double()
        loss = F.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        gradients[part] = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])
    if world_size > 1:
        # Every number is added to zeros alone.
        dist.all_reduce(gradients)
    total = torch.zeros_like(gradients[0])
    for each in gradients:
        total += each
    for parameter, gradient in zip(parameters, total.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = gradient.view_as(parameter).clone()
    optimizer.step()


def digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
