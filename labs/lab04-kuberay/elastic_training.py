"""A training on Ray that shrinks for another job and grows again, while its loss goes on.

python elastic_training.py                     the experiment; it needs a server that was started with --backend ray
python elastic_training.py train --steps 120   what every rank runs, under `phalanx launch`
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

WIDTH, BATCH, SAMPLES = 16, 12, 240
STEP = re.compile(r"^step (\d+) loss ([\d.e+-]+) ranks (\d+)$", re.MULTILINE)
PATIENCE_S = 300.0


def train(steps: int, step_s: float) -> None:
    """One rank: a regression whose batch is the same whatever the number of ranks that share it out."""
    import torch
    import torch.distributed as dist

    from phalanx.train.checkpoint import Checkpointer, Host, Shared
    from phalanx.train.data import Ledger, Shuffled

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    inputs = torch.randn(SAMPLES, WIDTH)
    targets = inputs.sum(dim=1, keepdim=True).sin()
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    ledger = Ledger(Shuffled(SAMPLES, seed=7), global_batch=BATCH)
    tiers = [Host(every=5), Shared(os.environ["PHALANX_CHECKPOINT_DIR"], every=20)]
    with Checkpointer({"model": model, "optimizer": optimizer, "data": ledger}, tiers) as checkpointer:
        checkpointer.load()
        while checkpointer.completed < steps:
            step(model, optimizer, inputs, targets, checkpointer.completed)
            ledger.commit()
            if rank == 0:
                # Of all samples: that of one batch goes up and down by what happens to be in it.
                with torch.no_grad():
                    loss = float((model(inputs) - targets).square().mean())
                print(f"step {checkpointer.completed + 1} loss {loss:.5f} ranks {ranks}", flush=True)
            time.sleep(step_s)
            if not checkpointer.step():
                return
    dist.destroy_process_group()


def step(model: Any, optimizer: Any, inputs: Any, targets: Any, number: int) -> None:
    """One step, on this rank's part of the batch."""
    import torch
    import torch.distributed as dist

    rank, ranks = dist.get_rank(), dist.get_world_size()
    batch = torch.arange(number * BATCH, (number + 1) * BATCH) % SAMPLES
    mine = batch[rank::ranks]
    optimizer.zero_grad()
    loss = (model(inputs[mine]) - targets[mine]).square().sum() / BATCH
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()


@dataclass(frozen=True)
class Stretch:
    """Steps in a row on one number of ranks."""

    ranks: int
    first: int
    last: int
    loss: float


def stretches(log: str) -> list[Stretch]:
    """What a log says of steps, put together by the number of ranks."""
    found: list[Stretch] = []
    for number, loss, ranks in STEP.findall(log):
        if found and found[-1].ranks == int(ranks):
            found[-1] = Stretch(int(ranks), found[-1].first, int(number), float(loss))
        else:
            found.append(Stretch(int(ranks), int(number), int(number), float(loss)))
    return found


def phalanx(*arguments: str, must: bool = True) -> str:
    """What a verb prints."""
    done = subprocess.run([sys.executable, "-m", "phalanx", *arguments], capture_output=True, text=True, check=False)
    if done.returncode and must:
        sys.exit(done.stderr.strip())
    return done.stdout


def submit(job: dict[str, Any]) -> str:
    """Submits a job; its id."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(job, file)
        file.flush()
        return phalanx("submit", file.name).split()[-1]


def steps_of(job: str) -> list[Stretch]:
    """How far a training is."""
    return stretches(phalanx("logs", job, "--rank", "0", "--stream", "out", must=False))


def await_stretch(job: str, count: int, steps: int) -> None:
    """Waits until a training has been on its `count`th number of ranks for some steps."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        found = steps_of(job)
        if len(found) >= count and found[-1].last - found[-1].first >= steps:
            return
        if time.monotonic() > until_s:
            sys.exit(f"job {job} came no further than {found}: phalanx logs {job} --stream err")
        time.sleep(0.5)


def experiment(steps: int, ranks_max: int, gpus: int, rival_gpus: int) -> None:
    """Lets a training run, takes GPUs from it for another job, gives them back, and shows the loss."""
    here = os.path.abspath(__file__)
    launch = [sys.executable, "-m", "phalanx", "launch", "--nproc-per-node", "1", "--"]
    command = [*launch, sys.executable, here, "train", "--steps", str(steps)]
    training = submit(
        {
            "name": "elastic-training",
            "command": command,
            "gang": [{"replicas": {"min": 1, "max": ranks_max}, "gpus": gpus}],
            "checkpoint": {},
            "grace": "60s",
        }
    )
    await_stretch(training, 1, 8)
    rival = submit({"name": "rival", "command": ["sleep", "3600"], "gpus": rival_gpus, "priority": 100})
    await_stretch(training, 2, 8)
    phalanx("cancel", rival)
    phalanx("wait", training)
    print(f"{'STEPS':>12} {'RANKS':>6} {'LOSS':>9}")
    for each in steps_of(training):
        print(f"{each.first:>5} - {each.last:>4} {each.ranks:>6} {each.loss:>9.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["experiment", "train"], default="experiment")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--step-s", type=float, default=0.2, help="how long a step takes beside its computation")
    parser.add_argument("--ranks", type=int, default=3, help="the most ranks that the training may have")
    parser.add_argument("--gpus", type=int, default=2, help="GPUs of each rank")
    parser.add_argument("--rival-gpus", type=int, default=4, help="GPUs of the job that takes some away, on one node")
    given = parser.parse_args()
    if given.what == "train":
        train(given.steps, given.step_s)
    else:
        experiment(given.steps, given.ranks, given.gpus, given.rival_gpus)
