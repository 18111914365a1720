"""A training that ends in the same weights, to the last bit, on any number of ranks: a program for jobs of tests.

`python training.py STEPS STEP_S`. A step takes so long until the file TRAINING_HURRY is there, by which a test lets it
go on faster. Without STEP_S it says the digest of a training to which nothing happens, and saves nothing. With
TRAINING_DIES_AT its last rank kills itself after that step, unless it was restarted. Each step has as many samples as
ever, in parts that any number of ranks share out. Gradients are gathered part by part and added up in one order, so
that who computed which makes no difference.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F  # noqa: N812

from phalanx.train.checkpoint import Checkpointer, Host, Shared

PARTS = 4
WIDTH = 24
SHARED_EVERY = 60
RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "PHALANX_TASK_RESTART_COUNT")


class Momentum:
    """An optimizer with a state. torch's own take longer to import what compiles them than torch itself takes."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters
        self._moments = [torch.zeros_like(each) for each in parameters]

    def step(self, gradients: Iterable[torch.Tensor]) -> None:
        with torch.no_grad():
            for parameter, moment, gradient in zip(self._parameters, self._moments, gradients, strict=True):
                moment.mul_(0.9).add_(gradient.view_as(parameter))
                parameter.sub_(moment, alpha=1e-2)

    def state_dict(self) -> dict[str, Any]:
        return {"moments": self._moments}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for moment, loaded in zip(self._moments, state["moments"], strict=True):
            moment.copy_(loaded)


def main(steps: int, step_s: float) -> None:
    torch.set_num_threads(1)
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    was_restarted = any(os.environ.get(name, "0") != "0" for name in RESTARTS)
    hurry = os.environ.get("TRAINING_HURRY", "")
    dies_at = None if was_restarted else int(os.environ.get("TRAINING_DIES_AT", "0"))
    if world_size > 1:
        join(rank, world_size)
    model, optimizer = begin()
    shared_every = int(os.environ.get("TRAINING_SHARED_EVERY", SHARED_EVERY))
    tiers = [Host(every=10), Shared(os.environ["PHALANX_CHECKPOINT_DIR"], every=shared_every)]
    with Checkpointer({"model": model, "optimizer": optimizer}, tiers) as checkpointer:
        loaded = checkpointer.load()
        where = "nothing" if loaded is None else f"step {loaded.step} from {loaded.tier}"
        say(f"rank {rank} of {world_size} loaded {where}")
        while checkpointer.completed < steps:
            learn(model, optimizer, checkpointer.completed, rank, world_size)
            if not os.path.exists(hurry):
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


def undisturbed(steps: int) -> str:
    """The digest of the weights in which a training of so many steps ends to which nothing happens."""
    torch.set_num_threads(1)
    model, optimizer = begin()
    for step in range(steps):
        learn(model, optimizer, step, 0, 1)
    return digest(model)


def begin() -> tuple[nn.Module, Momentum]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)).double()
    return model, Momentum(list(model.parameters()))


def join(rank: int, world_size: int) -> None:
    """Joins the process group. Workers that were restarted must not find there what was left by those before them."""
    is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, world_size, is_master=rank == 0 and not is_agents)
    own = dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
    dist.init_process_group("gloo", store=own, rank=rank, world_size=world_size)


def learn(model: nn.Module, optimizer: Momentum, step: int, rank: int, world_size: int) -> None:
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
    optimizer.step(total.split([p.numel() for p in parameters]))


def digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(int(sys.argv[1]), float(sys.argv[2]))
    else:
        say(undisturbed(int(sys.argv[1])))
