"""A rank of the storm: an elastic training whose weights are equal to the bit on any number of ranks.

`python storm_rank.py OUT`. It trains until the file `end` in OUT names a step, and writes down what it computed and
what counts.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from phalanx.bench.launch.rank import Notes
from phalanx.train.data import Ledger, Member, Shuffled
from phalanx.train.elastic import Elastic

SAMPLES, BATCH, WIDTH = 1200, 12, 4
STEP_S = 0.02


class Model:
    """Weights that follow the mean of their samples, with momentum."""

    def __init__(self) -> None:
        self.weights, self.moment = torch.zeros(2, WIDTH, dtype=torch.float64)

    def step(self, gradients: torch.Tensor) -> None:
        """Adds up sample by sample, in the same order on any number of ranks."""
        total = torch.zeros(WIDTH, dtype=torch.float64)
        for gradient in gradients:
            total += gradient
        self.moment.mul_(0.9).add_(total / len(gradients))
        self.weights.sub_(self.moment, alpha=1e-2)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"weights": self.weights, "moment": self.moment}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.weights.copy_(state["weights"])
        self.moment.copy_(state["moment"])


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    samples = torch.randn(SAMPLES, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    model, ledger = Model(), Ledger(Shuffled(SAMPLES, seed=3), BATCH)
    elastic = Elastic({"model": model, "data": ledger}, timeout_s=20.0)
    end, last = folder / "end", sys.maxsize
    for step in elastic.steps(sys.maxsize):
        with step:
            notes = Notes(folder / "notes")
            me, batch = Member.of_this_job(), ledger.batch
            own = [ledger.order.sample(ledger.epoch, each) for each in batch[me.rank :: me.world_size]]
            gradients = torch.zeros(len(batch), WIDTH, dtype=torch.float64)
            gradients[me.rank :: me.world_size] = model.weights - samples[own]
            # One that is cut off or killed in the collective may have given its part to the others, which go on by it.
            notes.add("computed", step=step.number, samples=own)
            dist.all_reduce(gradients)
            time.sleep(float(os.environ.get("BENCH_STEP_S", STEP_S)))
            step.commit()
            model.step(gradients)
            notes.add("counts", step=step.number, data_epoch=ledger.epoch)
            ledger.commit()
            notes.close()
        if end.exists():
            last = int(end.read_text())
        if elastic.completed >= last:
            break
    digest = hashlib.sha256(model.weights.numpy().tobytes()).hexdigest()[:16]
    notes = Notes(folder / "notes")
    notes.add("digest", digest=digest, step=elastic.completed)
    notes.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
