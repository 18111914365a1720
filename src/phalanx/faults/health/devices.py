"""Deep checks of this machine's GPUs: their memory is written and read back, and their links carry a small all-reduce.

They take half of what is free of each GPU's memory for some seconds, so they are for the time between jobs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

CHUNK_BYTES = 1 << 28
PATTERNS = (0x00, 0xFF, 0xAA, 0x55)
"""Every bit is 0 once and 1 once, also with its neighbours the other way round."""

NUMBERS = 1 << 22
ROUNDS = 5
RANKS_WITHOUT_GPUS = 2


class WrongError(Exception):
    """Hardware that does not do what it should; the text says where and how."""


class MissingError(Exception):
    """What a check needs is not here."""


def torch_or_missing() -> Any:
    """The library, where it is installed."""
    try:
        return import_module("torch")
    except ImportError:
        raise MissingError("torch is not installed") from None


def check_memory() -> str:
    """Writes patterns to half of the free memory of each GPU and reads them back; what was seen."""
    torch = torch_or_missing()
    count = torch.cuda.device_count()
    if not count:
        raise MissingError("torch sees no GPU")
    began_s, written = time.perf_counter(), 0
    for number in range(count):
        free, _ = torch.cuda.mem_get_info(number)
        written += fill(torch, f"cuda:{number}", free // 2)
        torch.cuda.empty_cache()
    return f"{count} GPUs, {written / 2**30:.1f} GiB written and read in {time.perf_counter() - began_s:.1f} s"


def fill(torch: Any, device: str, memory: int) -> int:
    """Fills so many bytes of a device with each pattern in turn, and compares; how many bytes these were."""
    chunks = [torch.empty(CHUNK_BYTES, dtype=torch.uint8, device=device) for _ in range(max(memory // CHUNK_BYTES, 1))]
    for pattern in PATTERNS:
        for chunk in chunks:
            chunk.fill_(pattern)
        # All are written before any is read: a line that is wired to two addresses shows only then.
        for number, chunk in enumerate(chunks):
            wrong = int((chunk != pattern).sum())
            if wrong:
                raise WrongError(f"{device}: {wrong} bytes of chunk {number} are not the {pattern:#04x} written there")
    return len(chunks) * CHUNK_BYTES


class Group(NamedTuple):
    """The processes of an all-reduce: by nccl one for each GPU, by gloo on processors."""

    backend: str
    size: int


def group_here(torch: Any) -> Group:
    """One process for each GPU; where there are no two GPUs, two on processors."""
    count = torch.cuda.device_count()
    return Group("nccl", count) if count > 1 else Group("gloo", RANKS_WITHOUT_GPUS)


def check_links() -> str:
    """Has all GPUs sum up numbers over their links, and compares; what was seen."""
    group = group_here(torch_or_missing())
    with tempfile.TemporaryDirectory(prefix="phalanx-health-") as folder:
        store = str(Path(folder) / "store")
        ranks = [_begin(group, rank, store) for rank in range(group.size)]
        said = [process.communicate() for process in ranks]
    for rank, (process, (_, errors)) in enumerate(zip(ranks, said, strict=True)):
        if process.returncode:
            last = errors.strip().splitlines()[-1:] or ["no word"]
            raise WrongError(f"rank {rank} of {group.size} by {group.backend} ended: {last[0]}")
    where = "GPUs" if group.backend == "nccl" else "processes on processors, for want of two GPUs"
    return f"{group.size} {where}: all-reduce of {NUMBERS * 4 >> 20} MiB at {said[0][0].strip()} GB/s"


def _begin(group: Group, rank: int, store: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "phalanx.faults.health.devices", group.backend, str(rank), str(group.size), store]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def take_part(backend: str, rank: int, size: int, store: str) -> Iterator[str]:
    """One rank of the all-reduce: says how fast the sums came, or raises if one is wrong."""
    torch = import_module("torch")
    distributed = import_module("torch.distributed")
    device = f"cuda:{rank}" if backend == "nccl" else "cpu"
    if backend == "nccl":
        torch.cuda.set_device(rank)
    distributed.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size)
    took_s = 0.0
    for turn in range(ROUNDS + 1):
        numbers = torch.full((NUMBERS,), float(rank + turn), device=device)
        began_s = time.perf_counter()
        distributed.all_reduce(numbers)
        expected = float(size * (size - 1) // 2 + size * turn)
        wrong = int((numbers != expected).sum())
        # The first one makes the connections.
        took_s += time.perf_counter() - began_s if turn else 0.0
        if wrong:
            raise WrongError(f"{wrong} of {NUMBERS} sums are not {expected:g}")
    distributed.destroy_process_group()
    if rank == 0:
        yield f"{2 * (size - 1) / size * NUMBERS * 4 * ROUNDS / took_s / 1e9:.2f}"


if __name__ == "__main__":
    for line in take_part(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]):
        sys.stdout.write(f"{line}\n")
