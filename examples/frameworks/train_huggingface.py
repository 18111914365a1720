"""A small training by Hugging Face's Trainer that survives its ranks: what it took is marked with `# phalanx`.

phalanx launch --nproc-per-node 2 -- examples/frameworks/train_huggingface.py --folder run
"""

from __future__ import annotations

import argparse
import hashlib

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, set_seed

from phalanx.train.checkpoint import Host, Shared  # phalanx
from phalanx.train.frameworks.transformers import PhalanxCallback  # phalanx


class Sums(Dataset):
    """Rows of numbers and their sums."""

    def __init__(self, length: int) -> None:
        self.rows = torch.randn(length, 8, generator=torch.Generator().manual_seed(5))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        return {"row": self.rows[number], "labels": self.rows[number].sum(dim=0, keepdim=True)}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        hidden = torch.nn.Linear(8, 16)
        self.layers = torch.nn.Sequential(hidden, torch.nn.Dropout(0.1), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def forward(self, row: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.layers(row)
        return {"loss": (found - labels).square().mean(), "logits": found}


def main(folder: str, epochs: int) -> None:
    set_seed(1)
    args = TrainingArguments(
        output_dir=folder,
        num_train_epochs=epochs,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        save_strategy="no",  # phalanx
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(Model(), args, train_dataset=Sums(100))
    tiers = [Host(every=2), Shared(f"{folder}/steps", every=10)]  # phalanx
    callback = PhalanxCallback(trainer, tiers, global_batch=16)  # phalanx
    trainer.train()
    if callback.is_leaving:  # phalanx
        return  # phalanx
    if trainer.is_world_process_zero():
        print(f"{trainer.state.global_step} steps, weights {digest(trainer.model)}")  # noqa: T201


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
