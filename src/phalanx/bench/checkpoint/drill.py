"""A launcher for drills: starts the ranks of a training, and starts them all again when one of them dies.

`python -m phalanx.bench.checkpoint.drill` takes drills as lines of JSON and answers each with one. Ranks are forked,
so that torch is loaded once for all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from phalanx.train.checkpoint import background_process, points

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore

STARTS_MAX = 4
TIMEOUT_S = 120.0

PF_EXITING = 0x4
"""The kernel's flag of a process that is on its way out."""


@dataclass(frozen=True, slots=True)
class Drill:
    """A training of so many steps, and which rank is killed where: `kill` is a point with a step and perhaps a rank."""

    folder: str
    job: str
    seed: int = 0
    world_size: int = 2
    steps: int = 10
    kill: str = ""
    host_every: int = 2
    durable_every: int = 4
    copies: int = 2
    tiers: tuple[str, ...] = ("host", "peer", "local", "shared")
    lose: tuple[int, ...] = ()
    """Ranks whose memory is lost as well when the trainers are started for the second time."""
    forks: bool = True
    """Whether background processes are forked, to save time."""
    environment: Mapping[str, str] = field(default_factory=dict)


def run(drill: Drill) -> dict[str, Any]:
    """Starts, and starts again after a death, until all ranks have ended; what they told."""
    deaths: list[dict[str, Any]] = []
    for start in range(STARTS_MAX):
        if start == 1:
            for rank in drill.lose:
                forget_memory(drill.job, rank)
        death = run_once(drill, start)
        if death is None:
            ends = [
                json.loads((Path(drill.folder) / f"end-{rank}.json").read_text()) for rank in range(drill.world_size)
            ]
            return {"deaths": deaths, "ranks": ends}
        deaths.append({**asdict(death), "half_done": unmarked(Path(drill.folder))})
    raise RuntimeError(f"{drill} did not end within {STARTS_MAX} starts")


@dataclass(frozen=True, slots=True)
class Death:
    """A rank that ended without being done, and how: a signal's number below zero, else its status; 0 if it hung."""

    rank: int
    status: int


def unmarked(folder: Path) -> list[int]:
    """The steps on disk without a commit mark: being written, or being taken away."""
    return sorted(int(d.name[5:13]) for d in folder.glob("**/step-*") if not (d / "COMMITTED").exists())


def run_once(drill: Drill, start: int) -> Death | None:
    """Which rank died, if not all ended well. When one dies, the others are killed, as launchers do."""
    # Rank 0 inherits the socket: a port that is let go and taken again may be another program's in between.
    with socket.create_server(("127.0.0.1", 0)) as store:
        pids = [_fork(drill, rank, store, start) for rank in range(drill.world_size)]
    deadline_s = time.monotonic() + TIMEOUT_S
    ends: dict[int, int] = {}
    while len(ends) < len(pids) and not any(ends.values()) and time.monotonic() < deadline_s:
        time.sleep(0.01)
        ends |= _ended()
    # A rank that ends of a killed rank's silence may be found before the killed one, which closes its sockets first.
    ends |= {pid: os.waitpid(pid, 0)[1] for pid in pids if pid not in ends and is_ending(pid)}
    failed = sorted((os.waitstatus_to_exitcode(ends[pid]), rank) for rank, pid in enumerate(pids) if ends.get(pid))
    left = [pid for pid in pids if pid not in ends]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if failed:
        return Death(failed[0][1], failed[0][0])
    return Death(pids.index(left[0]), 0) if left else None


def is_ending(pid: int) -> bool:
    """Whether a child of this process is dead, or dies already, and has not been waited for."""
    state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return state in "ZX" or bool(int(fields[5]) & PF_EXITING)


def _ended() -> dict[int, int]:
    """The processes that have ended since the last call, with their statuses."""
    ends = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ends[found[0]] = found[1]
    return ends


def _fork(drill: Drill, rank: int, store: socket.socket, start: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.environ.update(drill.environment, MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1")
        os.environ["PHALANX_MACHINE"] = f"machine-{rank}"
        os.environ.pop("LOCAL_RANK", None)
        os.environ.pop(points.ENVIRONMENT, None)
        if drill.kill and start == 0:
            os.environ[points.ENVIRONMENT] = drill.kill
        train(drill, rank, store)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


class Forked:
    """A background process that was forked, as subprocess shows one that was not."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG) if self.returncode is None else (0, 0)
        if pid:
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        while (code := self.poll()) is None:
            time.sleep(0.005)
        return code

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def fork_background(control_fd: int, hold_fd: int) -> Forked:
    """Starts a background process in milliseconds, where a fresh one would load torch for seconds, a hundred times."""
    pid = os.fork()
    if pid:
        return Forked(pid)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in (control_fd, hold_fd):
            with contextlib.suppress(OSError):
                os.close(int(name))
    background_process.serve(control_fd)
    os._exit(0)


def train(drill: Drill, rank: int, listening: socket.socket) -> None:
    """One rank, from the newest state to the last step. Rank 0 serves the store at the socket for all."""
    import torch
    import torch.distributed as dist

    from phalanx.bench.checkpoint.tiny_gpt import Training
    from phalanx.train.checkpoint import Checkpointer, RngState, background

    if drill.forks:
        background.start_process = fork_background  # type: ignore[assignment]
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if drill.world_size > 1:
        store = _store(rank, drill.world_size, listening)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=drill.world_size)
    step = 0
    training = Training(drill.seed, rank, drill.world_size, lambda point: points.reached(point, step, rank))
    state = {
        "model": training.model,
        "optimizer": training.optimizer,
        "schedule": training.schedule,
        "data": training.cursor,
        "rng": RngState(),
    }
    with Checkpointer(state, tiers_of(drill), job=drill.job, signals=()) as checkpointer:
        loaded = checkpointer.load()
        while checkpointer.completed < drill.steps:
            step = checkpointer.completed + 1
            training.step()
            checkpointer.step()
            if step % drill.durable_every == 0 or step % drill.host_every == 0:
                # A step takes milliseconds here, and saving to disk as long as many steps: without waiting, the
                # point that is drilled might never be reached.
                checkpointer.wait()
        end = {
            "digest": training.digest(),
            "loaded": None if loaded is None else asdict(loaded),
            "faults": list(checkpointer.faults),
            "describe": checkpointer.describe(),
        }
        (Path(drill.folder) / f"end-{rank}.json").write_text(json.dumps(end))
    if drill.world_size > 1:
        dist.destroy_process_group()


def _store(rank: int, world_size: int, listening: socket.socket) -> TCPStore:
    from torch._C._distributed_c10d import TCPStore

    host, port = listening.getsockname()
    if rank == 0:
        # It is the store's to close from here on.
        return TCPStore(host, port, world_size, is_master=True, master_listen_fd=listening.detach())
    listening.close()
    return TCPStore(host, port, world_size, is_master=False)


def tiers_of(drill: Drill) -> list[Any]:
    from phalanx.train.checkpoint import Host, Local, Peer, Retention, Shared

    folder = Path(drill.folder)
    tiers = {
        "host": Host(every=drill.host_every),
        "peer": Peer(copies=drill.copies, every=drill.host_every),
        "local": Local(folder / "local", every=drill.durable_every, keep=Retention(last=1)),
        "shared": Shared(folder / "shared", every=drill.durable_every, keep=Retention(last=1)),
    }
    return [tiers[name] for name in drill.tiers]


def forget_memory(job: str, seat: int) -> None:
    """A machine is lost, and its memory with it."""
    from phalanx.train.checkpoint.host.keeper import Keeper

    Keeper.attach(job, seat).end()


def main() -> None:
    """Takes a drill as a line of JSON, answers with one, and so on until there are no more."""
    # Loaded before the ranks are forked, which then need not load it; optimisers load the compiler in their first step.
    import torch._dynamo
    import torch.distributed.tensor  # noqa: F401

    import phalanx.bench.checkpoint.tiny_gpt
    import phalanx.train.checkpoint.checkpointer
    import phalanx.train.checkpoint.store.reading.load  # noqa: F401

    for line in sys.stdin:
        fields = json.loads(line)
        drill = msgspec.convert(fields, Drill)
        sys.stdout.write(json.dumps(run(drill)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
