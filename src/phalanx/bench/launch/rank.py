"""A rank of the benchmarks: steps of a collective over gloo, each written down. `python rank.py WAY OUT [NUMBER]`.

The ways are `train` (until told to end), `survive` (the same, by ranks that keep their memory when another fails),
`slow` (so many steps, the last rank now and then ten times as slow) and `faults` (so many epochs, each ended by the
fault that is drawn for it). State goes to BENCH_STATE: `disk`, by torch.save, or `host`, by the checkpointer; without
it none is kept.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from phalanx.bench.launch.faults import fail, fault_of
from phalanx.train.checkpoint import Checkpointer, Host
from phalanx.train.elastic import Elastic
from phalanx.train.launch.progress import beat

STEP_S = 0.02
BEFORE_FAULT = 3
SAVE_EVERY = 5
PARAMETERS = 250_000


class Notes:
    """One line of JSON for each thing that happens, in a file that all ranks share."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        names = ("RANK", "WORLD_SIZE", "PHALANX_EPOCH", "TORCHELASTIC_RESTART_COUNT")
        self._who = {name.lower(): int(os.environ.get(name, "0")) for name in names}

    def add(self, event: str, **facts: Any) -> None:
        said = {"event": event, "at_s": time.time(), "pid": os.getpid(), **self._who, **facts}
        os.write(self._file, json.dumps(said).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


class Training:
    """A model whose steps are counted on from where its state was kept."""

    def __init__(self, folder: Path) -> None:
        self.model = torch.nn.Linear(PARAMETERS, 1, bias=False)
        self.step = 0
        self._path = folder / "state.pt"
        self._way = os.environ.get("BENCH_STATE", "")
        self._checkpointer: Checkpointer | None = None
        if self._way == "host":
            self._checkpointer = Checkpointer({"model": self.model}, [Host(every=SAVE_EVERY)], job=str(folder))
            self._checkpointer.load()
            self.step = self._checkpointer.completed
        elif self._way == "disk" and self._path.exists():
            saved = torch.load(self._path)
            self.model.load_state_dict(saved["model"])
            self.step = saved["step"]

    def do_step(self, pause_s: float) -> None:
        dist.all_reduce(torch.ones(8))
        time.sleep(pause_s)
        self.step += 1
        if self._checkpointer is not None:
            self._checkpointer.step()
        elif self._way == "disk" and self.step % SAVE_EVERY == 0 and dist.get_rank() == 0:
            torch.save({"model": self.model.state_dict(), "step": self.step}, f"{self._path}.part")
            os.replace(f"{self._path}.part", self._path)
        beat(self.step)

    def close(self) -> None:
        """Lets go of host memory, which is kept for a next trainer otherwise."""
        if self._checkpointer is not None:
            self._checkpointer.close()


def train(notes: Notes, folder: Path, number: int) -> None:
    training = Training(folder)
    end = torch.zeros(1)
    while not end.item():
        training.do_step(STEP_S)
        notes.add("step", step=training.step)
        # All ranks end after the same step.
        end[0] = float((folder / "end").exists())
        dist.all_reduce(end)
    training.close()


def survive(notes: Notes, folder: Path, number: int) -> None:
    model = torch.nn.Linear(PARAMETERS, 1, bias=False)
    elastic = Elastic({"model": model}, tell=lambda _: None)
    end = torch.zeros(1)
    for step in elastic.steps(sys.maxsize):
        with step:
            end[0] = float((folder / "end").exists())
            dist.all_reduce(end)
            time.sleep(STEP_S)
            step.commit()
            notes.add("step", step=step.number + 1)
        if end.item():
            break


def slow(notes: Notes, folder: Path, number: int) -> None:
    training = Training(folder)
    drawn = random.Random(dist.get_rank())
    is_last = dist.get_rank() == dist.get_world_size() - 1
    for _ in range(number):
        training.do_step(STEP_S * (10 if is_last and drawn.random() < 0.1 else 1))


def faults(notes: Notes, folder: Path, number: int) -> None:
    epoch = int(os.environ["PHALANX_EPOCH"])
    fault = fault_of(epoch, dist.get_world_size()) if epoch <= number else None
    training = Training(folder)
    # The launcher ends a job whose steps do not grow.
    training.step = epoch * BEFORE_FAULT
    for _ in range(BEFORE_FAULT):
        training.do_step(STEP_S)
    if fault is not None and fault.rank == dist.get_rank():
        fail(fault.kind)
    dist.all_reduce(torch.ones(8))


def join() -> None:
    """Joins the process group. In a store of torchrun's agent, ranks would find the addresses of those before them.

    torchrun's agents need not agree on how often they restarted, so that only a store of one agent goes by it.
    """
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    is_agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store: Store = TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world_size, is_master=rank == 0 and not is_agents
    )
    if is_agents:
        store = PrefixStore(f"bench/{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)


WAYS: dict[str, Callable[[Notes, Path, int], None]] = {
    "train": train,
    "survive": survive,
    "slow": slow,
    "faults": faults,
}


def main(way: str, folder: Path, number: int) -> None:
    torch.set_num_threads(1)
    notes = Notes(folder / "notes")
    if way != "survive":
        join()
    notes.add("began")
    WAYS[way](notes, folder, number)
    notes.add("ended")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
