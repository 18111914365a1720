"""What it takes to suspend jobs that know nothing of it, on a machine with an NVIDIA GPU (driver 570 or newer).

    PYTHONPATH=src python benchmarks/suspend_h200.py [--only moves,preempt,turns,criu] [--sizes 1,10,60]

`moves`: seconds to move so many GB of one process to the host and back, and that every value is as it was. `preempt`:
the same through the local backend, with another job on the whole GPU meanwhile. `turns`: two trainings that each need
more than half of the memory, by turns and one after the other. `criu`: whether a suspended process can be dumped and
restored by criu, which must be on the PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from phalanx.backends.local.backend import LocalBackend
from phalanx.backends.local.device_memory.driver import Driver
from phalanx.backends.local.device_memory.moves import move_in, move_out
from phalanx.backends.local.device_memory.usage import used_mb
from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.host.gpus import find_gpus
from phalanx.backends.local.orders import Yard
from phalanx.cluster.device import Mode, Portion
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import Action, ActionId, Resume, Start, Stop, Suspend
from phalanx.protocol.event import AttemptEnded, Done, Event, Failed
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Execution, Job

PATIENCE_S = 300.0

HOLDER = """
import sys, time, torch
gb = float(sys.argv[1])
torch.manual_seed(7)
blocks = [torch.randint(0, 2**31, (2**27,), dtype=torch.int32, device="cuda") for _ in range(max(1, round(2 * gb)))]
def digest():
    return hex(sum(int(block.to(torch.int64).sum()) * (i + 1) for i, block in enumerate(blocks)) & (2**64 - 1))
print("ready", digest(), flush=True)
while True:
    line = sys.stdin.readline()
    if not line:
        time.sleep(3600)
    print("still", digest(), flush=True)
"""

COUNTER = (
    HOLDER.split("while True")[0]
    + """
while True:
    print("still", digest(), time.time(), flush=True)
    time.sleep(0.5)
"""
)

TRAINER = """
import sys, time, torch
gb, seconds = float(sys.argv[1]), float(sys.argv[2])
torch.manual_seed(1)
state = torch.zeros(int(gb * 1e9) // 4, dtype=torch.float32, device="cuda")
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
done, step_s, began = 0.0, None, time.time()
print("began", began, flush=True)
steps = 0
while done < seconds:
    torch.cuda.synchronize()
    at = time.perf_counter()
    b = a
    for _ in range(20):
        b = torch.tanh(a @ b)
    state[steps % state.numel()] += 1
    torch.cuda.synchronize()
    took = time.perf_counter() - at
    # A step in which it was suspended took as long as any other, but for that.
    step_s = took if step_s is None else min(step_s, took)
    done += min(took, 3 * step_s)
    steps += 1
print("ended", time.time(), "steps", steps, "sum", float(state[:steps].sum()), flush=True)
"""


def main() -> None:
    """Runs what is asked for and prints it as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="moves,preempt,turns,criu")
    parser.add_argument("--sizes", default="1,10,60")
    parser.add_argument("--share", type=float, default=0.6)
    parser.add_argument("--ballast", type=float, default=0.0, help="GB of the GPU that somebody else keeps")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--turn", type=float, default=30.0)
    given = parser.parse_args()
    say(facts())
    for name in given.only.split(","):
        began_s = time.monotonic()
        match name:
            case "moves":
                for size in given.sizes.split(","):
                    say({"moves": measure_move(float(size))})
            case "preempt":
                say({"preempt": measure_preemption()})
            case "turns":
                say({"turns": measure_turns(given)})
            case "criu":
                say({"criu": try_criu()})
        say({"took_s": round(time.monotonic() - began_s, 1), "of": name})


def say(row: dict[str, object]) -> None:
    """Prints one result."""
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def facts() -> dict[str, object]:
    """On what this runs."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    smi = _words(asked) if shutil.which(asked[0]) else "none"
    return {"date": time.strftime("%Y-%m-%d"), "gpu": smi, "host_gb": round(host_gb())}


def host_gb() -> float:
    """Memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9


def measure_move(gb: float) -> dict[str, object]:
    """Moves a process of so many GB to the host and back."""
    driver = Driver()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(gb)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        before = child.stdout.readline().split()[1]
        used = used_mb().get(child.pid, 0)
        out = move_out(driver, lambda: [child.pid])
        left = used_mb().get(child.pid, 0)
        back = move_in(driver, [child.pid], {})
        child.stdin.write("\n")
        child.stdin.flush()
        after = child.stdout.readline().split()[1]
        child.kill()
    rates = {"out_gb_s": round(used / 1024 / out.seconds, 2), "in_gb_s": round(used / 1024 / back.seconds, 2)}
    times = {"out_s": round(out.seconds, 2), "in_s": round(back.seconds, 2)}
    return {"gb": gb, "used_mb": used, "left_mb": left, **times, **rates, "values_are_right": before == after}


class Machine:
    """Jobs of one task on the first GPU, on the local backend; this program is the engine."""

    def __init__(self, turn_s: float = 60.0) -> None:
        self.data = Path(tempfile.mkdtemp(prefix="phalanx-suspend-"))
        self.jobs: dict[str, Job] = {}
        names = {"n0": tuple(gpu.uuid for gpu in find_gpus())}
        yard = Yard(self.data, device_names=names, turn_ms=int(turn_s * 1000))
        self.backend = LocalBackend(yard, self.jobs.__getitem__)
        self.seen: list[Event] = []
        self.seq: dict[str, int] = {}

    def id(self, job: str) -> ActionId:
        """The number of the next action for a job."""
        self.seq[job] = self.seq.get(job, -1) + 1
        return ActionId(1, job, 1, self.seq[job])

    def start(self, job: str, program: str, *arguments: str, portion: Portion | None = None) -> Event:
        """Starts a Python program."""
        path = self.data / f"{job}.py"
        path.write_text(program)
        gang = Gang((Role("worker", 1, 1, Task(1)),))
        execution = Execution((sys.executable, str(path), *arguments))
        self.jobs[job] = replace(Job(job, gang), execution=execution, grace_ms=1000)
        return self.ask(Start(self.id(job), Placement((Slot(0, "worker", "n0", (0,), portion),))))

    def ask(self, action: Action) -> Event:
        """Has an action carried out, and waits for its answer."""
        self.backend.carry_out(action, 0)
        return self.hear(lambda event: isinstance(event, Done | Failed) and event.action == action.id)

    def hear(self, match: Callable[[Event], bool], patience_s: float = PATIENCE_S) -> Event:
        """Waits for an event."""
        deadline_s = time.monotonic() + patience_s
        while time.monotonic() < deadline_s:
            self.seen += self.backend.events(0)
            for event in self.seen:
                if match(event):
                    return event
            time.sleep(0.02)
        raise SystemExit(f"nothing came within {patience_s} s; there were {self.seen}")

    def printed(self, job: str) -> list[list[str]]:
        """What a job has printed, line by line, word by word."""
        path = Path(AttemptFolder(str(self.data / "jobs" / job / "1")).log_path(0, "out"))
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def errors(self, job: str) -> str:
        """The end of what it had to complain of."""
        return Path(AttemptFolder(str(self.data / "jobs" / job / "1")).log_path(0, "err")).read_text()[-600:]

    def close(self) -> None:
        """Ends all that runs."""
        self.backend.adopt((), 0)
        self.backend.close()


def measure_preemption() -> dict[str, object]:
    """A job of 10 GB is suspended for one that takes nearly the whole GPU, and goes on after it."""
    machine = Machine()
    started = machine.start("low", COUNTER, "10")
    assert isinstance(started, Done), started
    _await(lambda: len(machine.printed("low")) > 2)
    began_s = time.monotonic()
    suspended = machine.ask(Suspend(machine.id("low"), host_mb=16_384))
    out_s = time.monotonic() - began_s
    if isinstance(suspended, Failed):
        machine.close()
        return {"failed": suspended.reason}
    machine.start("high", COUNTER, "120")
    _await(lambda: len(machine.printed("high")) > 1 or "Error" in machine.errors("high"))
    high = "fits" if len(machine.printed("high")) > 1 else machine.errors("high")
    machine.ask(Stop(machine.id("high"), 0, "cancelled"))
    at_rest = len(machine.printed("low"))
    began_s = time.monotonic()
    place = Placement((Slot(0, "worker", "n0", (0,)),))
    resumed = machine.ask(Resume(machine.id("low"), place))
    in_s = time.monotonic() - began_s
    if isinstance(resumed, Failed):
        machine.close()
        return {"failed": resumed.reason}
    _await(lambda: len(machine.printed("low")) > at_rest + 2)
    digests = {words[1] for words in machine.printed("low")}
    machine.close()
    return {
        "suspend_s": round(out_s, 2),
        "other_job_of_120_gb": high,
        "resume_s": round(in_s, 2),
        "values_are_right": len(digests) == 1,
    }


def measure_turns(given: argparse.Namespace) -> dict[str, object]:
    """Two trainings that each need a share of the memory: by turns, and one after the other.

    The host must have room for both while they change places. Where it has not, a ballast makes the GPU smaller.
    """
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(given.ballast)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as ballast:
        assert ballast.stdout is not None
        ballast.stdout.readline()
        free_gb = find_gpus()[0].memory_mb * 1.048576e-3 - sum(used_mb().values()) * 1.048576e-3
        gb = round(given.share * free_gb, 1)
        try:
            say({"turns": {"gb_left": round(free_gb, 1), "gb_each": gb, "work_s_each": given.seconds}})
            say({"one_after_the_other": _in_sequence(gb, given.seconds)})
            return {"turn_s": given.turn, **_by_turns(gb, given.seconds, given.turn)}
        finally:
            ballast.kill()


def _in_sequence(gb: float, seconds: float) -> dict[str, object]:
    machine = Machine()
    began_s = time.monotonic()
    ends = []
    for job in ("a", "b"):
        machine.start(job, TRAINER, str(gb), str(seconds))
        machine.hear(lambda event, job=job: isinstance(event, AttemptEnded) and event.job == job)  # type: ignore[misc]
        ends.append(round(time.monotonic() - began_s, 1))
    machine.close()
    return {"ends_s": ends}


def _by_turns(gb: float, seconds: float, turn_s: float) -> dict[str, object]:
    machine = Machine(turn_s)
    total_mb = find_gpus()[0].memory_mb
    began_s = time.monotonic()
    for turn, job in enumerate(("a", "b")):
        # What it may keep while others run: less than it has, so that it leaves.
        portion = Portion(Mode.TURNS, 500, total_mb // 8, turns=2, turn=turn)
        machine.start(job, TRAINER, str(gb), str(seconds), portion=portion)
    ends: dict[str, float] = {}
    outcomes = {}
    while len(ends) < 2:
        try:
            event = machine.hear(lambda event: isinstance(event, AttemptEnded) and event.job not in ends, 20)
        except SystemExit:
            now_s = round(time.monotonic() - began_s, 1)
            say({"at_s": now_s, "device_mb": sum(used_mb().values()), "seen": [type(e).__name__ for e in machine.seen]})
            continue
        assert isinstance(event, AttemptEnded)
        ends[event.job] = round(time.monotonic() - began_s, 1)
        outcomes[event.job] = event.outcome.value
    words = {job: machine.printed(job)[-1:] for job in ends}
    faults = {job: machine.errors(job) for job in ends if outcomes[job] != "succeeded"}
    machine.close()
    return {"ends_s": ends, "outcomes": outcomes, "said": words, "faults": faults}


def try_criu() -> dict[str, object]:
    """Dumps a suspended process of 1 GB with criu, ends it, and restores it."""
    criu = shutil.which("criu")
    if criu is None:
        return {"failed": "criu is not on the PATH"}
    driver = Driver()
    folder = Path(tempfile.mkdtemp(prefix="phalanx-criu-"))
    log = folder / "out"
    with log.open("w") as out:
        child = subprocess.Popen(
            [sys.executable, "-c", COUNTER, "1"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    _await(lambda: log.read_text().count("still") > 1)
    move_out(driver, lambda: [child.pid])
    told: dict[str, object] = {"version": _words([criu, "--version"])}
    dump = [criu, "dump", "-t", str(child.pid), "-D", str(folder), "-o", "dump.log", "-v2", "--file-locks"]
    began_s = time.monotonic()
    dumped = subprocess.run(dump, capture_output=True, text=True, check=False, timeout=120)
    told |= {"dump": dumped.returncode, "dump_s": round(time.monotonic() - began_s, 1)}
    if dumped.returncode:
        told["dump_log"] = _tail(folder / "dump.log") or dumped.stderr[-400:]
        child.kill()
        return told
    child.wait()
    lines = log.read_text().count("still")
    restore = [criu, "restore", "-D", str(folder), "-o", "restore.log", "-v2", "-d", "--file-locks"]
    restored = subprocess.run(restore, capture_output=True, text=True, check=False, timeout=120)
    told["restore"] = restored.returncode
    if restored.returncode:
        told["restore_log"] = _tail(folder / "restore.log") or restored.stderr[-400:]
        return told
    move_in(driver, [child.pid], {})
    _await(lambda: log.read_text().count("still") > lines + 1)
    digests = {line.split()[1] for line in log.read_text().splitlines() if line.startswith("still")}
    os.kill(child.pid, 9)
    return told | {"values_are_right": len(digests) == 1}


def _words(command: list[str]) -> str:
    return " ".join(subprocess.run(command, capture_output=True, text=True, check=False).stdout.split())


def _tail(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return " | ".join([line for line in lines if "Error" in line or "Warn" in line][-8:])


def _await(what: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    deadline_s = time.monotonic() + patience_s
    while not what():
        if time.monotonic() > deadline_s:
            raise SystemExit("it did not come to be in time")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
