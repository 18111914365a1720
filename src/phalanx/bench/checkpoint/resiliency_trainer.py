"""A trainer that keeps its state in one of two ways and says what that costs, as lines of JSON; then it is killed.

`python -m phalanx.bench.checkpoint.resiliency_trainer WAY LAYERS WIDTH FOLDER JOB` trains, saves, and waits to be
killed; with `--resume` it brings back what is left, says which step and how long that took, and ends.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import torch

from phalanx.bench.checkpoint.layers import Layers, Size
from phalanx.train.checkpoint import Checkpointer, Host, Shared
from phalanx.train.checkpoint.tiers import Tier

SAVES = 11
ADDED_SAVES, STEPS_A_SAVE = 4, 5
NEVER = 1 << 31
WAYS: tuple[str, ...] = ("phalanx", "phalanx, disk too", "lm-resiliency", "lm-resiliency, disk too")


class Way(Protocol):
    """A way to keep the state of a training."""

    def save(self, step: int) -> None:
        """Begins a save after a step."""

    def settle(self) -> None:
        """Returns when the copy in memory is whole."""

    def resume(self) -> int | None:
        """Fills the state; the step, or None if nothing is left."""

    def processes(self) -> list[int]:
        """The processes whose memory it takes."""


class Phalanx:
    """Ours: memory that outlives the trainer, and a disk where asked for."""

    def __init__(self, layers: Layers, folder: Path, job: str, to_disk: bool) -> None:
        tiers: list[Tier] = [Host(every=NEVER)]
        if to_disk:
            tiers.append(Shared(folder, every=NEVER))
        self._checkpointer = Checkpointer(layers.parts, tiers, job=job, signals=())

    def save(self, step: int) -> None:
        self._checkpointer.step()
        self._checkpointer.save()

    def settle(self) -> None:
        self._checkpointer._saver.hear(wait=True)

    def resume(self) -> int | None:
        loaded = self._checkpointer.load()
        return None if loaded is None else loaded.step

    def processes(self) -> list[int]:
        rank_context = self._checkpointer._station
        return [
            rank_context.memory.keeper.pid,
            *([rank_context.background.pid] if rank_context.background is not None else []),
        ]

    def close(self) -> None:
        self._checkpointer.close()


class LmResiliency:
    """Its manager with `save_tensors`, the cheapest of its calls; with a disk, it is written to at every save."""

    def __init__(self, layers: Layers, folder: Path, job: str, to_disk: bool) -> None:
        checkpointing = importlib.import_module("lm_resiliency.checkpointing")
        self._layers = layers
        config = checkpointing.InMemoryCkptConfig(
            interval=1, disk_flush_interval=1 if to_disk else 0, disk_folder=str(folder), run_id=job
        )
        self._manager: Any = checkpointing.InMemoryCheckpointManager(config)

    def save(self, step: int) -> None:
        self._manager.save_tensors(self._layers.tensors(), step)

    def settle(self) -> None:
        self._manager.maybe_wait()

    def resume(self) -> int | None:
        # It fills tensors that are there, so that the optimiser must have made its moments first.
        self._layers.step()
        loaded = self._manager.load_tensors()
        if loaded is None:
            return None
        tensors, step, _ = loaded
        with torch.no_grad():
            for goal, source in zip(self._layers.tensors(), tensors, strict=True):
                goal.copy_(source)
        return int(step)

    def processes(self) -> list[int]:
        return []

    def close(self) -> None:
        self._manager.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("layers", type=int)
    parser.add_argument("width", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("job")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layers = Layers(Size(options.layers, options.width), device)
    kind = Phalanx if options.way.startswith("phalanx") else LmResiliency
    way = kind(layers, options.folder, options.job, options.way.endswith("disk too"))
    if options.resume:
        resume(layers, way)
        way.close()
    else:
        train(layers, way)


def train(layers: Layers, way: Way) -> None:
    """Saves after every step, and waits to be killed when the last copy is whole."""
    layers.step()
    layers.synchronize()
    before = memory_bytes([os.getpid()])
    first_s = layers.timed_s(lambda: way.save(1))
    calls_s, processor_s = [], []
    for step in range(2, SAVES + 2):
        layers.step()
        way.settle()
        began_s = time.thread_time()
        calls_s.append(layers.timed_s(partial(way.save, step)))
        processor_s.append(time.thread_time() - began_s)
    way.settle()
    layers.synchronize()
    taken = memory_bytes([os.getpid(), *way.processes()]) - before
    facts = {
        "first_s": first_s,
        "call_s": median(calls_s),
        "processor_s": median(processor_s),
        "memory_bytes": taken,
        "state_bytes": state_bytes(layers),
    }
    last = SAVES + 1
    if layers.device.type == "cuda":
        facts["added_s"] = added_s(layers, way, last)
        last += ADDED_SAVES
    tell(**facts, step=last)
    time.sleep(600)


def added_s(layers: Layers, way: Way, last: int) -> float:
    """What a save adds to a training that does not wait for the device, beyond what the call itself takes."""

    def train_on(saves: bool) -> float:
        layers.synchronize()
        began_s = time.monotonic()
        for number in range(ADDED_SAVES * STEPS_A_SAVE):
            layers.step()
            if saves and number % STEPS_A_SAVE == 0:
                way.save(last + 1 + number // STEPS_A_SAVE)
        torch.cuda.current_stream().synchronize()
        return time.monotonic() - began_s

    train_on(saves=False)
    alone_s = train_on(saves=False)
    with_s = train_on(saves=True)
    way.settle()
    return (with_s - alone_s) / ADDED_SAVES


def resume(layers: Layers, way: Way) -> None:
    began_s = time.monotonic()
    step = way.resume()
    layers.synchronize()
    tell(step=step, seconds=time.monotonic() - began_s)


def state_bytes(layers: Layers) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in layers.tensors())


def memory_bytes(pids: list[int]) -> int:
    """Host memory of processes: what each has for itself, and shared memory as the first of them has it mapped."""
    total = 0
    for number, pid in enumerate(pids):
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        total += 1024 * int(lines["RssAnon"].split()[0])
        if number == 0:
            total += 1024 * int(lines["RssShmem"].split()[0])
    return total


def tell(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
