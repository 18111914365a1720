"""A small training by Lightning's Trainer that survives its ranks: what it took is marked with `# phalanx`.

phalanx launch --nproc-per-node 2 -- examples/frameworks/train_lightning.py --folder run
"""

from __future__ import annotations

import argparse
import hashlib
import os

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch.utils.data import TensorDataset

from phalanx.train.checkpoint import Host, Shared  # phalanx
from phalanx.train.frameworks.lightning import PhalanxCallback  # phalanx


class Model(LightningModule):
    """Learns the sums of rows of numbers."""

    def __init__(self) -> None:
        super().__init__()
        hidden = torch.nn.Linear(8, 16)
        self.layers = torch.nn.Sequential(hidden, torch.nn.Dropout(0.1), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        rows, sums = batch
        loss = (self.layers(rows) - sums).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> tuple[list[torch.optim.Optimizer], list[torch.optim.lr_scheduler.LRScheduler]]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


def main(folder: str, epochs: int) -> None:
    seed_everything(1, verbose=False)
    rows = torch.randn(100, 8, generator=torch.Generator().manual_seed(5))
    dataset = TensorDataset(rows, rows.sum(dim=1, keepdim=True))
    callback = PhalanxCallback([Host(every=2), Shared(f"{folder}/steps", every=10)], global_batch=16)  # phalanx
    loader = callback.loader(dataset, micro_batch=4)  # phalanx
    model = Model()
    trainer = Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy="ddp",
        max_epochs=epochs,
        callbacks=[callback],  # phalanx
        use_distributed_sampler=False,  # phalanx
        enable_checkpointing=False,  # phalanx
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer.fit(model, loader)
    if callback.is_leaving:  # phalanx
        return  # phalanx
    if trainer.is_global_zero:
        print(f"{trainer.global_step} steps, weights {digest(model)}")  # noqa: T201


def digest(model: torch.nn.Module) -> str:
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()[:16]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default="run", help="where it saves")
    parser.add_argument("--epochs", type=int, default=4)
    given = parser.parse_args()
    main(given.folder, given.epochs)
