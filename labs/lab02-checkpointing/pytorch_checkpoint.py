"""Way 1: torch.save, the training waits.

    python pytorch_checkpoint.py --directory /tmp/lab --die-at 37
    python pytorch_checkpoint.py --directory /tmp/lab          # goes on from step 30

Compare the digest with that of a run that was never killed: they are equal. Then look at how long the training stood
still for each save. Things to try: leave the generator out of the state and watch the digest; take away the renaming,
kill during a save, and try to load.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
from training import Training, arguments, maybe_die


def save(training: Training, step: int, directory: Path) -> None:
    """Writes the whole state under another name first: a file with the right name is always whole."""
    state = {
        "step": step,
        "model": training.model.state_dict(),
        "optimizer": training.optimizer.state_dict(),
        "schedule": training.schedule.state_dict(),
        "data": training.data.state_dict(),
        "rng": torch.get_rng_state(),
    }
    unfinished = directory / "unfinished"
    with unfinished.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(directory / f"step-{step:06d}.pt")


def load(training: Training, directory: Path) -> int:
    """The step that was brought back, 0 if there is none."""
    files = sorted(directory.glob("step-*.pt"))
    if not files:
        return 0
    state: dict[str, Any] = torch.load(files[-1], weights_only=True)
    training.model.load_state_dict(state["model"])
    training.optimizer.load_state_dict(state["optimizer"])
    training.schedule.load_state_dict(state["schedule"])
    training.data.load_state_dict(state["data"])
    torch.set_rng_state(state["rng"])
    return int(state["step"])


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    training = Training(options.width)
    step = load(training, options.directory)
    print(f"starting at step {step}")
    stood_s = 0.0
    began = time.perf_counter()
    while step < options.steps:
        loss = training.step()
        step += 1
        if step % options.every == 0:
            before = time.perf_counter()
            save(training, step, options.directory)
            stood_s += time.perf_counter() - before
            print(f"step {step}: loss {loss:.3f}, saved")
        maybe_die(step, options.die_at)
    took_s = time.perf_counter() - began
    print(f"step {step}: digest {training.digest()}, stood still {stood_s:.3f} s of {took_s:.3f} s")


if __name__ == "__main__":
    main()
