"""What a job of Slurm's holds of each node now: while one starts or ends, what was planned for it says little."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from phalanx.backends.slurm.commands import SlurmRefused, run
from phalanx.backends.slurm.nodes import fields
from phalanx.workload.formats.hostlist import HostlistError, expand, numbers

_ALLOCATED = re.compile(r"Nodes=(\S+) CPU_IDs=(\S*) Mem=(\d*) GRES=(\S*)")
_IDX = re.compile(r"gpu[^()]*:(\d+)\(IDX:([^)]*)\)")
CERTAIN = ("PENDING", "RUNNING")
"""Of a job in another state Slurm may count some of what it holds as free, and some not."""


class Held(NamedTuple):
    """A part of one node."""

    devices: tuple[int, ...] = ()
    cpus_milli: int = 0
    memory_mb: int = 0


Holding = Mapping[str, Held]
"""By node."""


def ask_holding(job: str) -> Holding | None:
    """What a job holds; nothing of one that is over, None of one that is between two states."""
    try:
        return read_holding(run(["scontrol", "show", "job", "--details", "--oneliner", job]))
    except SlurmRefused:
        return {}


def ask_holdings(jobs: Iterable[str]) -> dict[str, Holding | None]:
    """What jobs hold, by number."""
    return {job: ask_holding(job) for job in jobs}


def read_holding(text: str) -> Holding | None:
    """What the parts of one job hold, from what `scontrol show job -d -o` prints."""
    lines = [line for line in text.splitlines() if "JobId=" in line]
    if any(fields(line).get("JobState") not in CERTAIN for line in lines):
        return None
    return {node: held for line in lines for node, held in allocated(line)}


def allocated(line: str) -> Iterator[tuple[str, Held]]:
    """The nodes of a job, with what it has of each."""
    for names, cpus, memory_mb, gres in _ALLOCATED.findall(line):
        try:
            devices = tuple(number for _, text in _IDX.findall(gres) for number in numbers(text))
            held = Held(devices, 1000 * len(numbers(cpus)), int(memory_mb or 0))
            yield from ((name, held) for name in expand(names))
        except HostlistError:
            continue
