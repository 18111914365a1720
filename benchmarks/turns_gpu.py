"""What a job has on a GPU within a step, how long that takes to the host and back, and what comes of two in turns that
together have more than there is: docs/concepts/sharing.md.

`python benchmarks/turns_gpu.py --out FILE` (with src on PYTHONPATH, on a machine with a GPU and PyTorch) prints a row
for each figure, as `phalanx bench` does, and writes them as lines of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from phalanx.backends.local.backend import LocalBackend
from phalanx.backends.local.host.machine import device_names, local_cluster
from phalanx.backends.local.logs import log_files
from phalanx.backends.local.orders import Yard
from phalanx.bench.row import Row, ratio, row
from phalanx.cluster.device import Mode, Portion
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import ActionId, Start
from phalanx.protocol.event import AttemptEnded
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Execution, Job

GB = 1 << 30
STEPS = 5
BUFFER_BYTES = 2 * GB
TIMES = 5

TURN_MS = 3_000
WINDOW_S = 30.0
PATIENCE_S = 120.0
BATCH_LARGE = 256
"""Of which a transformer has more than half of an H200 in the middle of a step."""

WORKER = """
import os, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
from turns_gpu import transformer
from phalanx.train.turns import Turns
step, turns = transformer(int(sys.argv[2])), Turns()
for number in range(1_000_000):
    step()
    turns.step_done(number)
    print(number, flush=True)
"""


def transformer(batch: int) -> Callable[[], Any]:
    """A training step of 24 layers in bf16, with Adam."""
    layer = nn.TransformerEncoderLayer
    model = nn.Sequential(*(layer(1024, 16, 4096, batch_first=True, dropout=0.0) for _ in range(24)))
    return _training(model.to("cuda", torch.bfloat16), torch.randn(batch, 512, 1024).to("cuda", torch.bfloat16))


def convolution(batch: int) -> Callable[[], Any]:
    """A training step of 16 layers of convolutions in fp32, with momentum."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3)]
    for number in range(16):
        wide = 64 << number // 4
        layers += [nn.Conv2d(wide >> (number % 4 == 0 and number > 0), wide, 3, 1 + (number % 4 == 0), 1)]
        layers += [nn.BatchNorm2d(wide), nn.ReLU()]
    return _training(nn.Sequential(*layers).cuda(), torch.randn(batch, 3, 224, 224).cuda())


def _training(model: nn.Module, inputs: torch.Tensor) -> Callable[[], Any]:
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        model(inputs).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def memory_gb(step: Callable[[], Any]) -> tuple[float, float, float]:
    """The least and the most that a step has on the device, and its seconds."""
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    begin_s = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    took_s = (time.perf_counter() - begin_s) / STEPS
    return torch.cuda.memory_allocated() / GB, torch.cuda.max_memory_allocated() / GB, took_s


def copies_gb_per_s(pinned: bool) -> tuple[float, float]:
    """How fast memory goes to the host, and comes back."""
    there = torch.empty(BUFFER_BYTES, dtype=torch.uint8, device="cuda")
    here = torch.empty(BUFFER_BYTES, dtype=torch.uint8, pin_memory=pinned)
    return _rate(here, there), _rate(there, here)


def _rate(target: torch.Tensor, source: torch.Tensor) -> float:
    target.copy_(source)
    torch.cuda.synchronize()
    begin_s = time.perf_counter()
    for _ in range(TIMES):
        target.copy_(source)
    torch.cuda.synchronize()
    return TIMES * BUFFER_BYTES / GB / (time.perf_counter() - begin_s)


def in_turns(jobs: int, at_step: bool) -> tuple[int, int]:
    """Steps that so many trainings get done in a while that take turns on one GPU, and how many of them fail."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as text:
        data, cluster = Path(text), local_cluster()
        execution = Execution((sys.executable, "-c", WORKER, os.pathsep.join(sys.path), str(BATCH_LARGE)))
        known = {str(number): Job(str(number), GANG, execution=execution) for number in range(jobs)}
        backend = LocalBackend(Yard(data, device_names=device_names(cluster), turn_ms=TURN_MS), known.__getitem__)
        try:
            for number, name in enumerate(known):
                portion = Portion(Mode.TURNS, 500, 0, turns=2, turn=number, at_step=at_step)
                placement = Placement((Slot(0, "worker", cluster.nodes[0].name, (0,), portion),))
                backend.carry_out(Start(ActionId(1, name, 1, 0), placement), 0)
            return _steps_and_failures(backend, data, list(known))
        finally:
            backend.adopt((), 0)
            while any((data / "backend" / "live").iterdir()):
                time.sleep(0.05)
            backend.close()


GANG = Gang((Role("worker", 1, 1, Task(1)),))


def _steps_and_failures(backend: LocalBackend, data: Path, jobs: list[str]) -> tuple[int, int]:
    """Counted from when each has done a step or failed."""
    ended: dict[str, None] = {}

    def look() -> dict[str, int]:
        ended.update((event.job, None) for event in backend.events(0) if isinstance(event, AttemptEnded))
        time.sleep(0.05)
        return {job: _steps(data, job) for job in jobs}

    deadline_s = time.monotonic() + PATIENCE_S
    while not all(count or job in ended for job, count in look().items()):
        if time.monotonic() > deadline_s:
            raise SystemExit("not all jobs came to a step")
    before, until_s = look(), time.monotonic() + WINDOW_S
    while time.monotonic() < until_s:
        after = look()
    return sum(after.values()) - sum(before.values()), len(ended)


def _steps(data: Path, job: str) -> int:
    return sum(log.path.read_text().count("\n") for log in log_files(data, job, 1) if log.stream == "out")


def figures() -> list[Row]:
    found = []
    rates = {}
    for name, pinned in (("pinned", True), ("pageable", False)):
        out, back = copies_gb_per_s(pinned)
        rates[name] = 1 / (1 / out + 1 / back)
        found += [row(f"{name} memory to the host", out, "GB/s"), row(f"{name} memory from the host", back, "GB/s")]
    torch.cuda.empty_cache()
    for name, make, batch in (
        ("transformer", transformer, 128),
        ("transformer of twice the batch", transformer, BATCH_LARGE),
        ("convolution", convolution, 256),
    ):
        low_gb, high_gb, step_s = memory_gb(make(batch))
        torch.cuda.empty_cache()
        found.append(row(f"{name}: a step", 1000 * step_s, "ms"))
        for point, size_gb in (("least, at the end of a step", low_gb), ("most", high_gb)):
            found.append(row(f"{name}: {point}", size_gb, "GB"))
            found.append(row(f"{name}: {point}: to the host and back", 1000 * size_gb / rates["pinned"], "ms"))
    torch.cuda.empty_cache()
    alone, _ = in_turns(1, True)
    for where, at_step in (("with a step", True), ("at any moment", False)):
        steps, failed = in_turns(2, at_step)
        found.append(row(f"two in turns that end {where}: steps, relative to one alone", ratio(steps, alone), "ratio"))
        found.append(row(f"two in turns that end {where}: out of memory", failed, "jobs"))
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, required=True)
    out: Path = arguments.parse_args().out
    found = figures()
    out.write_text("".join(json.dumps(each) + "\n" for each in found))
    for each in found:
        sys.stdout.write(f"{each['name']}: {each['value']:.3f} {each['unit']}\n")


if __name__ == "__main__":
    main()
