"""What jobs get done that share one GPU: every figure of "How fast shared jobs run" in docs/concepts/sharing.md.

`python benchmarks/sharing_gpu.py --out FILE` (with src on PYTHONPATH, on a machine with a GPU and PyTorch) prints a row
for each figure, as `phalanx bench` does, and writes them as lines of JSON. All jobs are run by the local backend, with
the shares that a job file asks for. A figure is work per second relative to one job alone on the device: the sum over
those that share it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from phalanx.backends.local.backend import LocalBackend
from phalanx.backends.local.host.machine import device_names, local_cluster
from phalanx.backends.local.host.mps import has_mps
from phalanx.backends.local.orders import Yard
from phalanx.bench.row import ratio, row
from phalanx.cluster.device import FULL_PERMILLE, Mode, Portion
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import ActionId, Start
from phalanx.protocol.event import Event, Failed
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Execution, Job

WORKS = ("training steps", "matrix products", "copies in device memory")
WINDOW_S = 8.0
TURN_MS = 1_000
PATIENCE_S = 120.0

WORKER = """
import json, os, sys, time
import torch
folder, name, window_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
gpu = torch.device("cuda")
torch.manual_seed(0)
layer = lambda: torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0.0)
model = torch.nn.Sequential(*(layer() for _ in range(6))).to(gpu, torch.bfloat16)
tokens = torch.randn(8, 512, 1024, device=gpu, dtype=torch.bfloat16)
square = torch.randn(4096, 4096, device=gpu, dtype=torch.bfloat16)
source, target = (torch.empty(1 << 28, device=gpu, dtype=torch.uint8) for _ in range(2))

def train():
    model(tokens).float().square().mean().backward()
    model.zero_grad(set_to_none=True)

def multiply():
    for _ in range(20):
        square @ square

def copy():
    for _ in range(20):
        target.copy_(source)

works = (train, multiply, copy)
for work in works:
    for _ in range(3):
        work()
torch.cuda.synchronize()
open(f"{folder}/{name}.ready", "w").close()
while not os.path.exists(f"{folder}/go"):
    time.sleep(0.01)
begin = float(open(f"{folder}/go").read())
done = []
for number, work in enumerate(works):
    from_s, until_s = begin + number * window_s, begin + (number + 1) * window_s
    time.sleep(max(from_s - time.time(), 0))
    count = 0
    while time.time() < until_s:
        work()
        torch.cuda.synchronize()
        count += time.time() < until_s
    done.append(count)
with open(f"{folder}/{name}.done.new", "w") as file:
    json.dump(done, file)
os.rename(f"{folder}/{name}.done.new", f"{folder}/{name}.done")
"""


@dataclass(frozen=True, slots=True)
class Company:
    """So many jobs on one GPU, each with such a share of it."""

    name: str
    jobs: int
    portion: Portion | None = None


def mps(percent: int) -> Portion:
    return Portion(Mode.MPS, percent * 10, 0)


def turns(count: int) -> Portion:
    return Portion(Mode.TURNS, FULL_PERMILLE // count, 0, turns=count)


ALONE = Company("alone", 1)
COMPANIES = (
    Company("2 at once, sliced by the driver", 2),
    Company("4 at once, sliced by the driver", 4),
    Company(f"2 in turns of {TURN_MS / 1000:g} s", 2, turns(2)),
    Company(f"4 in turns of {TURN_MS / 1000:g} s", 4, turns(4)),
)
BY_MPS = (
    Company("1 with 50 % by MPS", 1, mps(50)),
    Company("2 with 50 % by MPS", 2, mps(50)),
    Company("1 with 25 % by MPS", 1, mps(25)),
    Company("4 with 25 % by MPS", 4, mps(25)),
)


def measure(company: Company) -> list[int]:
    """How much of each work all of them get done in a window of time."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as text:
        data, agreement = Path(text, "data"), Path(text, "meeting")
        data.mkdir()
        agreement.mkdir()
        cluster = local_cluster()
        command = [(sys.executable, "-c", WORKER, str(agreement), str(number), str(WINDOW_S)) for number in range(4)]
        gang = Gang((Role("worker", 1, 1, Task(1)),))
        jobs = {str(number): Job(str(number), gang, execution=Execution(command[number])) for number in range(4)}
        backend = LocalBackend(Yard(data, device_names=device_names(cluster), turn_ms=TURN_MS), jobs.__getitem__)
        woken = threading.Event()
        backend.wake = woken.set
        names = [str(number) for number in range(company.jobs)]
        for number, name in enumerate(names):
            portion = company.portion.at_turn(number) if company.portion and company.portion.turns else company.portion
            placement = Placement((Slot(0, "worker", cluster.nodes[0].name, (0,), portion),))
            backend.carry_out(Start(ActionId(1, name, 1, 0), placement), 0)
        try:
            _await(agreement, names, "ready", backend, woken)
            begin_s = time.time() + 1 + company.jobs * TURN_MS / 1000
            (agreement / "go.new").write_text(str(begin_s))
            (agreement / "go.new").rename(agreement / "go")
            _await(agreement, names, "done", backend, woken)
            done = [json.loads((agreement / f"{name}.done").read_text()) for name in names]
        finally:
            backend.adopt((), 0)
            while any((data / "backend" / "live").iterdir()):
                time.sleep(0.05)
            backend.close()
        return [sum(each[number] for each in done) for number in range(len(WORKS))]


def _await(agreement: Path, names: list[str], what: str, backend: LocalBackend, woken: threading.Event) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    seen: list[Event] = []
    while not all((agreement / f"{name}.{what}").exists() for name in names):
        seen += backend.events(0)
        failed = [event for event in seen if isinstance(event, Failed)]
        if failed or time.monotonic() > deadline_s:
            raise SystemExit(f"not all jobs got {what}: {seen}")
        woken.wait(0.05)
        woken.clear()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, required=True)
    out: Path = arguments.parse_args().out
    alone = measure(ALONE)
    with out.open("w") as file:
        for company in (*COMPANIES, *(BY_MPS if has_mps() else ())):
            shared = measure(company)
            for work, count, before in zip(WORKS, shared, alone, strict=True):
                line = row(f"{company.name}: {work}, sum relative to one alone", ratio(count, before), "ratio")
                file.write(json.dumps(line) + "\n")
                file.flush()
                sys.stdout.write(f"{line['name']}: {line['value']:.3f}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
