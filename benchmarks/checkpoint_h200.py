"""What checkpoints cost on one GPU, beside torch's own ways: every figure of docs/results/checkpoint.md.

`python benchmarks/checkpoint_h200.py --folder DISK --out FILE` (with src on PYTHONPATH) prints a row for each figure,
as `phalanx bench` does, and writes them as lines of JSON. `--only PART …` runs some parts. `--tiny` runs it small, also
without a GPU, to see that it works.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from checkpoint_model import BILLION, TINY, Training
from phalanx.bench.checkpoint import resiliency
from phalanx.train.checkpoint import Checkpointer, Host, Retention, Shared
from phalanx.train.checkpoint.contents.state import State
from phalanx.train.checkpoint.host.slot import Slot
from phalanx.train.checkpoint.store import load_into

NEVER = 2**31
LEAN_MB = 256
GB = 1e9


class Report:
    """Rows, printed and written as they come, so that none is lost if a later part fails."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text("")

    def row(self, name: str, value: float | None, unit: str, target: float | None = None, least: bool = False) -> None:
        met = None
        if target is not None and value is not None:
            met = value >= target if least else value <= target
        line = {"name": name, "value": value, "unit": unit, "target": target, "met": met}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        shown = (
            ""
            if target is None
            else f"   ({'at least' if least else 'at most'} {target:g}: {'met' if met else 'MISSED'})"
        )
        self.say(f"{name}: {value if value is None else format(value, '.5g')} {unit}{shown}")

    def say(self, line: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - START_S:6.1f} s] {line}\n")
        sys.stdout.flush()


START_S = time.monotonic()
PARTS = (
    "ground",
    "bus",
    "pinning",
    "memory",
    "restart",
    "added_time",
    "bitwise",
    "durable",
    "beside_disk",
    "nccl",
    "torch_arms",
    "resiliency",
)


class Bench:
    """One training, disturbed in many ways."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.size_name = "tiny" if options.tiny else "billion"
        self.report = Report(Path(options.out))
        self.folder = Path(options.folder)
        self.only: list[str] = options.only
        self.block_steps = 12 if options.tiny else 60
        self.repeats = 2 if options.tiny else 4
        self.training = Training(TINY if options.tiny else BILLION, self.device)
        self.bus_bytes_s = float("inf")
        self.restored_s: float | None = None

    def run(self) -> None:
        for name in PARTS:
            if self.only and name not in self.only:
                continue
            self.report.say(f"--- {name}")
            try:
                getattr(self, name)()
            except Exception:
                self.report.say(traceback.format_exc())

    def ground(self) -> None:
        """The training alone."""
        alone_s = self.step_s
        self.report.row("parameters", self.training.parameter_count / 1e9, "billion")
        self.report.row("state S", self.state_bytes / GB, "GB")
        self.report.row("step alone", alone_s, "s")
        self.hbm("peak HBM of the training alone")
        shmem = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
        self.report.say(f"huge pages for shared memory: {shmem.read_text().strip() if shmem.exists() else '?'}")
        self.report.say(f"disk: {shutil.disk_usage(self.folder)}; torch {torch.__version__}; {self.device_name()}")

    @cached_property
    def state_bytes(self) -> int:
        """S, once the optimiser has its moments."""
        assert self.step_s
        values = [*self.training.model.state_dict().values()]
        values += [v for state in self.training.optimizer.state.values() for v in state.values()]
        return sum(value.numel() * value.element_size() for value in values)

    @cached_property
    def step_s(self) -> float:
        """A step of the training alone, measured when a part first asks for it: parts run also by themselves."""
        for _ in range(5):
            self.training.step()
        return self.timed(lambda: self.steps(self.block_steps)) / self.block_steps

    def bus(self) -> None:
        """How fast pinned memory is copied, each way."""
        if self.device.type != "cuda":
            return
        size = 4 << 30
        host, there = (
            torch.empty(size, dtype=torch.uint8, pin_memory=True),
            torch.empty(size, dtype=torch.uint8, device="cuda"),
        )
        for name, goal, source in [("to the host", host, there), ("to the device", there, host)]:
            goal.copy_(source, non_blocking=True)
            seconds = min(self.timed(lambda g=goal, s=source: g.copy_(s, non_blocking=True)) for _ in range(3))
            self.report.row(f"pinned copy {name}", size / seconds / GB, "GB/s")
            if name == "to the host":
                self.bus_bytes_s = size / seconds

    def pinning(self) -> None:
        """The first snapshots, due at every step, while their memory is being pinned; and one that cannot wait."""
        alone_s = self.step_s
        checkpointer = Checkpointer(self.training.parts, [Host(every=1)], job=f"pinning {os.getpid()}", signals=())
        longest_s, steps, began_s = 0.0, 0, time.monotonic()
        while checkpointer.describe()["postponed"] == steps and steps < 1000:
            longest_s = max(longest_s, self.timed(lambda: self.steps(1, checkpointer)))
            steps += 1
        taken_s = time.monotonic() - began_s
        self.report.row("pinning: steps until the first snapshot", steps, "steps")
        self.report.row("pinning: seconds until the first snapshot", taken_s, "s")
        self.report.row("pinning: longest step meanwhile", longest_s, "s")
        self.report.row("pinning: longest step meanwhile / step alone", longest_s / alone_s, "times")
        self.report.row("pinning: time lost until the first snapshot", taken_s - steps * alone_s, "s")
        self.report.row(
            "pinning: waiting for it in all", checkpointer.describe().get("waited_for_pinning_s", 0.0), "s", 0.1
        )
        checkpointer.close()
        checkpointer = self.checkpointer("asked", None)
        self.steps(1, checkpointer)
        self.training.synchronize()
        seconds = self.timed(checkpointer.save)
        self.report.row("pinning: save() right after the first step, which waits for it", seconds, "s")
        checkpointer.close()

    def added_time(self) -> None:
        """Steps with snapshots beside steps without, in turn; the ratio of each block to its neighbours."""
        before = self.hbm_now()
        staged, lean = self.checkpointer("staged", None), self.checkpointer("lean", LEAN_MB)
        modes = [("staged, one in 10 steps", staged, 10, 1.0), ("staged, one in 3 steps", staged, 3, 5.0)]
        modes.append(("lean, one in 10 steps", lean, 10, None))
        for checkpointer in (staged, lean):
            self.steps(5, checkpointer)
            self.training.synchronize()
            self.with_snapshots(checkpointer, 4, 16)
        for name, checkpointer in (("staged", staged), ("lean", lean)):
            facts = checkpointer.describe()
            self.report.row(f"{name}: scratch H", facts.get("scratch_bytes", 0) / GB, "GB")
            self.report.row(
                f"{name}: waiting for two slots to be pinned, once", facts.get("waited_for_pinning_s", 0.0), "s"
            )
        self.report.say(f"HBM held by both: {(self.hbm_now() - before) / GB:.2f} GB")
        alone = [self.without()]
        ratios: dict[str, list[float]] = {name: [] for name, *_ in modes}
        added: dict[str, list[float]] = {name: [] for name, *_ in modes}
        for _ in range(self.repeats):
            for name, checkpointer, every, _ in modes:
                with_s, count = self.with_snapshots(checkpointer, every, self.block_steps)
                alone.append(self.without())
                base_s = (alone[-2] + alone[-1]) / 2
                ratios[name].append((with_s / base_s - 1) * 100)
                added[name].append((with_s - base_s) / count)
        self.report.row("step alone, median of the blocks", statistics.median(alone) / self.block_steps, "s")
        for name, checkpointer, _, target in modes:
            values = ratios[name]
            steps = self.repeats * self.block_steps
            self.report.row(f"{name}: added time, median over {steps} steps", statistics.median(values), "%", target)
            self.report.row(f"{name}: added time, least", min(values), "%")
            self.report.row(f"{name}: added time, most", max(values), "%")
            self.report.row(f"{name}: added per snapshot", statistics.median(added[name]), "s")
            facts = checkpointer.describe()
            self.report.row(f"{name}: stall at the fence", facts["costs"]["host"]["blocked_s"], "s")
            self.report.row(f"{name}: copy of one snapshot", facts["costs"]["host"]["busy_s"], "s")
        self.bound(lean, statistics.median(added["lean, one in 10 steps"]))
        self.report.say(f"skipped: {staged.describe()['skipped']} staged, {lean.describe()['skipped']} lean")
        for checkpointer in (staged, lean):
            checkpointer.close()

    def bound(self, lean: Checkpointer, added_s: float) -> None:
        """What little scratch costs at least: the bus needs (S − H)/B, of which W passes unnoticed."""
        facts = lean.describe()
        window_s, scratch = facts.get("window_s", 0.0), facts.get("scratch_bytes", 0)
        bound_s = max(0.0, (self.state_bytes - scratch) / self.bus_bytes_s - window_s)
        self.report.row("lean: W, from one optimizer.step to the next", window_s, "s")
        self.report.row("lean: bound max(0, (S − H)/B − W)", bound_s, "s")
        if bound_s:
            self.report.row("lean: added per snapshot / bound", added_s / bound_s, "times", 1.1)

    def bitwise(self) -> None:
        """Every tenth snapshot beside a synchronous copy of the same step, byte for byte."""
        for name, scratch_mb in (("staged", None), ("lean", LEAN_MB)):
            checkpointer = self.checkpointer(f"bitwise {name}", scratch_mb)
            different, checked = 0, 0
            for number in range(1, 11 if self.size_name == "tiny" else 61):
                for _ in range(3):
                    self.training.step()
                    checkpointer.step()
                checkpointer.save()
                if number % 10 == 0:
                    truth = [piece.tensor.clone() for piece in checkpointer._station.state.pieces()]
                    self.steps(1)
                    checkpointer.wait()
                    different += not self.is_equal(checkpointer, truth)
                    checked += 1
                    del truth
            self.report.row(
                f"{name}: snapshots that differ from a synchronous copy, of {checked} checked",
                different,
                "snapshots",
                0,
            )
            checkpointer.close()

    def is_equal(self, checkpointer: Checkpointer, truth: list[torch.Tensor]) -> bool:
        slots: list[Slot] = checkpointer._station.memory.own(2)
        slot = max(slots, key=lambda each: each.complete_step or -1)
        kept = [piece.tensor for piece in slot.pieces(slot.record())]
        return slot.complete_step == checkpointer.completed and all(
            # Cloned first: of memory that was registered in parts, no one copy may cross from part to part.
            torch.equal(a.clone().to(b.device).reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
            for a, b in zip(kept, truth, strict=True)
        )

    def durable(self) -> None:
        """Ours to the same disk as the others: how long training stands still, and when the step is safe."""
        where = self.folder / "ours"
        keep = Retention(last=1)
        alone_s = self.step_s
        checkpointer = Checkpointer(
            self.training.parts, [Host(every=NEVER), Shared(where, every=NEVER, keep=keep)], job="durable", signals=()
        )
        for _ in range(2):
            # Both slots are pinned, and the background process has torch loaded, before the clock runs.
            self.steps(3, checkpointer)
            checkpointer.save()
            checkpointer.wait()
        self.steps(3, checkpointer)
        self.training.synchronize()
        began_s = time.monotonic()
        checkpointer.save()
        called_s = time.monotonic() - began_s
        steps = 0
        while checkpointer.durable_step != checkpointer.completed - steps and time.monotonic() - began_s < 120:
            self.training.step()
            checkpointer.step()
            steps += 1
            self.training.synchronize()
        safe_s = time.monotonic() - began_s
        facts = checkpointer.describe()
        self.report.row("phalanx to disk: the call", called_s, "s")
        self.report.row("phalanx to disk: stall at the fence", facts["costs"]["host"]["blocked_s"], "s")
        self.report.row("phalanx to disk: from the call to the commit mark", safe_s, "s")
        self.report.row("phalanx to disk: steps trained meanwhile", steps, "steps")
        extra_s = safe_s - steps * alone_s
        self.report.row("phalanx to disk: training time lost for one durable save", extra_s, "s")
        self.report.row("phalanx to disk: interval it sustains", facts["costs"]["shared"]["busy_s"] / alone_s, "steps")
        self.report.say(f"faults: {list(checkpointer.faults)}")
        checkpointer.close()
        shutil.rmtree(where, ignore_errors=True)

    def beside_disk(self) -> None:
        """Snapshots to memory, one in 10 steps, while a step is being written: three slots have room for both."""
        where = self.folder / "beside"
        tiers = [Host(every=10, slots=3), Shared(where, every=NEVER, keep=Retention(last=1))]
        checkpointer = Checkpointer(self.training.parts, tiers, job=f"beside {os.getpid()}", signals=())
        self.steps(30, checkpointer)
        checkpointer.wait()
        skipped = checkpointer.describe()["skipped"]
        checkpointer.save()
        written, began = checkpointer.completed, checkpointer.completed
        while checkpointer.durable_step != written and checkpointer.completed - began < 2000:
            self.training.step()
            checkpointer.step()
            self.training.synchronize()
        steps = checkpointer.completed - began
        self.report.row("steps trained while one is written, with snapshots beside", steps, "steps")
        self.report.row(
            "snapshots to memory skipped meanwhile", checkpointer.describe()["skipped"] - skipped, "snapshots", 0
        )
        self.report.say(f"faults: {list(checkpointer.faults)}")
        checkpointer.close()
        shutil.rmtree(where, ignore_errors=True)

    def memory(self) -> None:
        """Peak memory of the device by its allocator, with each mode in a process of its own, and what close leaves."""
        peaks = {}
        for mode in ("alone", "staged", "lean"):
            command = [sys.executable, __file__, "--peak", mode, *(["--tiny"] if self.size_name == "tiny" else [])]
            said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            found = json.loads(said.splitlines()[-1])
            peaks[mode] = found["peak"]
            self.report.row(f"peak HBM, {mode}", found["peak"] / GB, "GB")
            self.report.row(f"peak HBM, {mode} / alone", found["peak"] / max(peaks["alone"], 1), "times")
            self.report.row(f"HBM that close does not give back, {mode}", found["left"] / GB, "GB", 0.001)
            for line in found["holders"]:
                self.report.say(line)

    def nccl(self) -> None:
        """A state cut by FSDP2, saved, and loaded over a group of NCCL, as far as one device goes."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29512")
        dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo", rank=0, world_size=1)
        where = self.folder / "sharded"
        training = Training(TINY, self.device)
        fully_shard(training.model, mesh=init_device_mesh(self.device.type, (1,)))
        training.optimizer = torch.optim.AdamW(training.model.parameters(), lr=1e-4)
        tiers = [Host(every=NEVER), Shared(where, every=NEVER)]
        with Checkpointer(training.parts, tiers, job=f"sharded {os.getpid()}", signals=()) as checkpointer:
            for _ in range(3):
                training.step()
                checkpointer.step()
            checkpointer.save()
            checkpointer.wait()
            pieces = State(training.parts).pieces()
            truth = [piece.tensor.clone() for piece in pieces]
            for name, fill in (
                ("from host memory", checkpointer.load),
                ("over the group", lambda: load_into(where, None, pieces, group=dist.group.WORLD)),
            ):
                for piece in pieces:
                    piece.tensor.zero_()
                fill()
                self.training.synchronize()
                wrong = sum(not torch.equal(piece.tensor, right) for piece, right in zip(pieces, truth, strict=True))
                self.report.row(f"FSDP2, {name}: tensors that differ, of {len(pieces)}", wrong, "tensors", 0)
        dist.destroy_process_group()
        shutil.rmtree(where, ignore_errors=True)

    def resiliency(self) -> None:
        """Beside the package lm-resiliency, on 8,000 tensors: its folder must be on PYTHONPATH."""
        size = resiliency.DEVICE if self.device.type == "cuda" else resiliency.QUICK
        for each in resiliency.run(size, self.report.say):
            self.report.row(each["name"], each["value"], each["unit"])

    def torch_arms(self) -> None:
        """One save each, as torch does it."""
        backend = "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo"
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29511")
        dist.init_process_group(backend, rank=0, world_size=1)
        for name, arm in (
            ("torch.save", self.torch_save),
            ("dcp.save", self.dcp_save),
            ("dcp.async_save", self.dcp_async),
            ("dcp.async_save, DefaultStager made anew", self.dcp_stager),
        ):
            where = self.folder / "theirs"
            shutil.rmtree(where, ignore_errors=True)
            where.mkdir(parents=True)
            self.training.synchronize()
            try:
                blocked_s, safe_s = arm(where)
            except Exception:
                self.report.say(traceback.format_exc())
                continue
            self.report.row(f"{name}: training stands still", blocked_s, "s")
            self.report.row(f"{name}: from the call to the file's being written", safe_s, "s")
            if name == "dcp.save":
                self.dcp_load(where)
        shutil.rmtree(self.folder / "theirs", ignore_errors=True)
        dist.destroy_process_group()

    def torch_save(self, where: Path) -> tuple[float, float]:
        began_s = time.monotonic()
        with (where / "state.pt").open("wb") as file:
            torch.save(self.training.state_dict(), file)
            file.flush()
            os.fsync(file.fileno())
        seconds = time.monotonic() - began_s
        return seconds, seconds

    def dcp_save(self, where: Path) -> tuple[float, float]:
        seconds = self.timed(lambda: dcp.save(self.training.state_dict(), checkpoint_id=where))
        return seconds, seconds

    def dcp_async(self, where: Path) -> tuple[float, float]:
        began_s = time.monotonic()
        future = dcp.async_save(self.training.state_dict(), checkpoint_id=where)
        blocked_s = time.monotonic() - began_s
        future.result()
        return blocked_s, time.monotonic() - began_s

    def dcp_stager(self, where: Path) -> tuple[float, float]:
        from torch.distributed.checkpoint.staging import DefaultStager

        began_s = time.monotonic()
        answer = dcp.async_save(self.training.state_dict(), checkpoint_id=where, async_stager=DefaultStager())
        # Training may change the state only once it is staged.
        answer.staging_completion.result()
        blocked_s = time.monotonic() - began_s
        answer.upload_completion.result()
        return blocked_s, time.monotonic() - began_s

    def dcp_load(self, where: Path) -> None:
        state = self.training.state_dict()
        for name in ("from the page cache", "from disk"):
            if name == "from disk" and not drop_caches():
                continue
            seconds = self.timed(lambda: dcp.load(state, checkpoint_id=where))
            self.report.row(f"dcp.load {name}", seconds, "s")
            if self.restored_s:
                self.report.row(
                    f"dcp.load {name} / restore from host memory", seconds / self.restored_s, "times", 10, least=True
                )

    def restart(self) -> None:
        """kill −9 to the first new step, in parts."""
        job = f"restart-{os.getpid()}"
        first = self.trainer(job, 3)
        for event in self.until(first, "saved"):
            self.report.say(f"first trainer, {event['what']}: {event['at_s'] - time.time():.2f} s")
        first.send_signal(signal.SIGKILL)
        killed_s = time.time()
        first.wait()
        second = self.trainer(job, 0)
        events = self.until(second, "first step")
        second.wait()
        at_s = {event["what"]: event["at_s"] for event in events}
        loaded = next(event for event in events if event["what"] == "loaded")
        self.restored_s = loaded["seconds"]
        self.report.say(f"came back at step {loaded['step']}")
        names = ["python", "imported", "context", "built", "loaded", "first step"]
        labels = [
            "start of the process",
            "import of torch",
            "CUDA context",
            "model and optimiser",
            "load",
            "first step",
        ]
        previous_s = killed_s
        for name, label in zip(names, labels, strict=True):
            self.report.row(f"kill −9 to first new step: {label}", at_s[name] - previous_s, "s")
            previous_s = at_s[name]
        self.report.row("kill −9 to first new step: all", at_s["first step"] - killed_s, "s")
        self.report.row("restore from host memory", self.restored_s, "s")
        self.report.row("restore from host memory, S a second", self.state_bytes / self.restored_s / GB, "GB/s")

    def trainer(self, job: str, steps: int) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            str(Path(__file__).with_name("checkpoint_restart.py")),
            job,
            self.size_name,
            str(steps),
        ]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def until(self, process: subprocess.Popen[str], what: str) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        assert process.stdout is not None
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1]["what"] == what:
                return events
        raise RuntimeError(f"the trainer ended before it said {what!r}")

    def checkpointer(self, name: str, scratch_mb: int | None) -> Checkpointer:
        return Checkpointer(
            self.training.parts, [Host(every=NEVER, scratch_mb=scratch_mb)], job=f"{name} {os.getpid()}", signals=()
        )

    def steps(self, count: int, checkpointer: Checkpointer | None = None) -> None:
        for _ in range(count):
            self.training.step()
            if checkpointer is not None:
                checkpointer.step()

    def without(self) -> float:
        return self.timed(lambda: self.steps(self.block_steps))

    def with_snapshots(self, checkpointer: Checkpointer, every: int, count: int) -> tuple[float, int]:
        taken = 0

        def work() -> None:
            nonlocal taken
            for number in range(count):
                self.training.step()
                checkpointer.step()
                # The last one has time to reach the host before the clock is read.
                if number % every == 0 and number + every <= count:
                    taken += checkpointer.save()

        return self.timed(work), taken

    def timed(self, work: Callable[[], Any]) -> float:
        self.training.synchronize()
        began_s = time.monotonic()
        work()
        self.training.synchronize()
        return time.monotonic() - began_s

    def hbm(self, name: str) -> None:
        self.report.row(name, self.hbm_peak() / GB, "GB")

    def hbm_peak(self) -> float:
        return float(torch.cuda.max_memory_allocated()) if self.device.type == "cuda" else 0.0

    def hbm_now(self) -> float:
        return float(torch.cuda.memory_allocated()) if self.device.type == "cuda" else 0.0

    def device_name(self) -> str:
        return torch.cuda.get_device_name() if self.device.type == "cuda" else "no GPU"


def drop_caches() -> bool:
    """Makes the next read come from the disk; only root may."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def tell_peak(mode: str, tiny: bool) -> None:
    """The part of `memory` that runs in a process of its own: one line of JSON."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    training = Training(TINY if tiny else BILLION, device)
    for _ in range(5):
        training.step()
    training.synchronize()
    before, peak = allocated(device), 0
    if mode == "alone":
        for _ in range(60):
            training.step()
        peak = allocated(device, peak=True)
    else:
        host = Host(every=NEVER, scratch_mb=None if mode == "staged" else LEAN_MB)
        checkpointer = Checkpointer(training.parts, [host], job=f"{mode} peak {os.getpid()}", signals=())
        for number in range(60):
            training.step()
            checkpointer.step()
            if number % 3 == 2:
                checkpointer.save()
        training.synchronize()
        peak = allocated(device, peak=True)
        checkpointer.close()
    training.synchronize()
    left = allocated(device) - before
    print(json.dumps({"peak": peak, "left": left, "holders": holders() if left > 1 << 20 else []}))  # noqa: T201


def allocated(device: torch.device, peak: bool = False) -> int:
    if device.type != "cuda":
        return 0
    return int(torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated())


def holders() -> list[str]:
    """The largest tensors on the device that have no name in the model, and who refers to them."""
    found = [each for each in gc.get_objects() if type(each) is torch.Tensor and each.is_cuda]
    found.sort(key=lambda each: each.untyped_storage().nbytes(), reverse=True)
    return [
        f"{each.untyped_storage().nbytes() / GB:.2f} GB: {[type(who).__name__ for who in gc.get_referrers(each)]}"
        for each in found[:8]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default="/tmp/phalanx-checkpoint-bench", help="where to write checkpoints")
    parser.add_argument("--out", default="checkpoint.jsonl", help="where to write the rows")
    parser.add_argument("--tiny", action="store_true", help="run it small: the figures then mean nothing")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=[], help="run these parts alone")
    parser.add_argument("--peak", choices=("alone", "staged", "lean"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        tell_peak(options.peak, options.tiny)
        return
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    Bench(options).run()


if __name__ == "__main__":
    main()
