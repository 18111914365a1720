"""Way 3: several ranks, each with a part of the model, and a restart on another number of them.

    python distributed_checkpoint.py --directory /tmp/lab --ranks 2 --steps 20
    python distributed_checkpoint.py --directory /tmp/lab --ranks 3 --steps 40     # the same weights on three ranks

FSDP2 cuts every weight and both moments by rows. Each rank writes its own rows; together they are one step in
torch.distributed.checkpoint's format, which any number of ranks loads: each reads some of the files and passes on what
others need. The digest after loading on three ranks is that of the last save on two. Things to try:
`phalanx checkpoint diff` on two steps; `dcp.load` on one of the directories; `phalanx checkpoint cp --to safetensors`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from training import Data, Training, arguments, flat

from phalanx.train.checkpoint import Checkpointer, RngState, Shared


def sharded_training(rank: int, ranks: int, width: int) -> Training:
    training = Training(width)
    for block in training.model.blocks:
        fully_shard(block)
    fully_shard(training.model)
    training.optimizer = torch.optim.AdamW(training.model.parameters(), lr=1e-3)
    training.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(training.optimizer, T_max=1000)
    training.data = Data(rank, ranks)
    return training


def digest(training: Training) -> str:
    """A fingerprint of the whole weights and moments, the same however they are cut."""
    sha = hashlib.sha256()
    for name, value in flat({"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict()}):
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        sha.update(name.encode())
        sha.update(whole.numpy().tobytes() if isinstance(whole, torch.Tensor) else repr(whole).encode())
    return sha.hexdigest()[:16]


def train(rank: int, options: argparse.Namespace, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=options.ranks, timeout=timedelta(seconds=120))
    training = sharded_training(rank, options.ranks, options.width)
    state = {
        "model": training.model,
        "optimizer": training.optimizer,
        "schedule": training.schedule,
        "data": training.data,
        "rng": RngState(),
    }
    with Checkpointer(state, [Shared(options.directory, every=options.every)]) as checkpointer:
        loaded = checkpointer.load()
        tell(rank, f"starting at step {checkpointer.completed} on {options.ranks} ranks, digest {digest(training)}")
        if loaded:
            print(f"  rank {rank} read {loaded.bytes_read:,} bytes", flush=True)
        while checkpointer.completed < options.steps:
            loss = training.step()
            checkpointer.step(metrics={"loss": loss})
            if checkpointer.completed % options.every == 0:
                tell(rank, f"step {checkpointer.completed}: loss {loss:.3f}, digest {digest(training)}")
        checkpointer.wait()
        checkpointer.save()
    dist.destroy_process_group()


def tell(rank: int, line: str) -> None:
    if rank == 0:
        print(line, flush=True)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--ranks", type=int, default=2, help="on how many processes (2)")
    options = parser.parse_args()
    # Nothing has run yet that a fork could harm, and torch is imported once for all ranks.
    mp.start_processes(train, (options, free_port()), nprocs=options.ranks, start_method="fork")


if __name__ == "__main__":
    main()
