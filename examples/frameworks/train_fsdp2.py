"""A small transformer cut by FSDP2, in a loop as torchtitan's, that survives its ranks; what it took has `# phalanx`.

phalanx launch --nproc-per-node 2 -- examples/frameworks/train_fsdp2.py --folder run
"""

from __future__ import annotations

import argparse
import hashlib

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

from phalanx.train.checkpoint import Host, Shared  # phalanx
from phalanx.train.frameworks.loop import Loop  # phalanx

WORDS, LENGTH, WIDTH = 32, 12, 16


class Model(torch.nn.Module):
    """A transformer that says which word comes next."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, WIDTH)
        options = {"nhead": 2, "dim_feedforward": 32, "dropout": 0.0, "batch_first": True}
        self.layers = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(WIDTH, **options) for _ in range(2))
        self.output = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(words)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        return self.output(hidden)


def sharded(model: Model) -> Model:
    """Each layer by itself, then what is left."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main(folder: str, steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    model = sharded(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
    dataset = TensorDataset(torch.randint(WORDS, (100, LENGTH + 1), generator=torch.Generator().manual_seed(5)))

    state = {"model": model, "optimizer": optimizer, "schedule": schedule}  # phalanx
    loop = Loop(dataset, [Host(every=2), Shared(folder, every=10)], state, micro_batch=4, global_batch=16)  # phalanx
    for step in loop.steps(steps):  # phalanx
        for (words,) in step:  # phalanx
            said = model(words[:, :-1])
            loss = torch.nn.functional.cross_entropy(said.flatten(0, 1), words[:, 1:].flatten())
            (loss * step.scale).backward()  # phalanx
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    if loop.is_leaving:  # phalanx
        return  # phalanx
    told = digest(model)
    if dist.get_rank() == 0:
        print(f"{steps} steps, weights {told}")  # noqa: T201


def digest(model: torch.nn.Module) -> str:
    """Of the whole weights, put together from all ranks."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.full_tensor().detach().numpy().tobytes())
    return found.hexdigest()[:16]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default="run", help="where it saves")
    parser.add_argument("--steps", type=int, default=28)
    given = parser.parse_args()
    main(given.folder, given.steps)
