"""What a save costs the training thread beyond the copy, and what a load costs, by the number of tensors."""

from __future__ import annotations

import time
import uuid
from statistics import median

import torch

from phalanx.bench.checkpoint.layers import Layers, Size
from phalanx.bench.row import Row, Tell, row
from phalanx.train.checkpoint import Checkpointer, Host
from phalanx.train.checkpoint.snapshots.snapshot import copy_all

NEVER = 1 << 31
SAVES = 15
WIDTH = 32
SAVING_TARGET_MS = 10.0

FULL = [Size(250, WIDTH), Size(1000, WIDTH)]
QUICK = [Size(4, WIDTH)]


def run(sizes: list[Size], tell: Tell) -> list[Row]:
    rows = []
    for size in sizes:
        tell(f"saving: {size.tensors:,} tensors")
        rows += rows_of(size)
    return rows


def rows_of(size: Size) -> list[Row]:
    job = f"bench saving {uuid.uuid4()}"
    layers = Layers(size, torch.device("cpu"))
    checkpointer = Checkpointer(layers.parts, [Host(every=NEVER)], job=job, signals=())
    layers.step()
    checkpointer.step()
    first_ms = save_ms(checkpointer)
    copied_ms = [copy_ms(layers) for _ in range(SAVES)]
    saved_ms = []
    for _ in range(SAVES):
        checkpointer.step()
        saved_ms.append(save_ms(checkpointer))
    checkpointer.leave()
    loaded_s = load_s(size, job)
    beyond_ms = median(saved_ms) - median(copied_ms)
    name = f"{size.tensors:,} tensors"
    return [
        row(f"save of {name}: time of the training thread beyond the copy", beyond_ms, "ms", SAVING_TARGET_MS),
        row(f"save of {name}: the copy by itself", median(copied_ms), "ms"),
        row(f"save of {name}: the first one, which plans", first_ms, "ms"),
        row(f"load of {name} from host memory", loaded_s, "s"),
    ]


def save_ms(checkpointer: Checkpointer) -> float:
    """Processor time, since other work on the machine is none of the training's."""
    began_s = time.thread_time()
    taken = checkpointer.save()
    assert taken
    return (time.thread_time() - began_s) * 1e3


def copy_ms(layers: Layers) -> float:
    """The same tensors, copied as a snapshot copies them, into memory that has been touched before."""
    tensors = layers.tensors()
    goals = [torch.zeros_like(tensor) for tensor in tensors]
    began_s = time.thread_time()
    copy_all(goals, tensors)
    return (time.thread_time() - began_s) * 1e3


def load_s(size: Size, job: str) -> float:
    """A new trainer that has done no step yet."""
    layers = Layers(size, torch.device("cpu"))
    with Checkpointer(layers.parts, [Host(every=NEVER)], job=job, signals=()) as checkpointer:
        loaded = checkpointer.load()
        assert loaded is not None
        return loaded.seconds
