"""Beside a Slurm that decides: when phalanx would have started each job, and when Slurm did."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from phalanx.beside.taken import Taken
from phalanx.beside.waits import Wait, summary
from phalanx.engine.turn import turn

FILE = "shadow.jsonl"


@dataclass(frozen=True, slots=True)
class Look:
    """What one look has found: jobs that run, that are pending, and that phalanx would start now."""

    at_ms: int
    running: tuple[str, ...]
    pending: tuple[str, ...]
    would_start: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Of the jobs that were seen pending and then running: how long each way was, from the first look at them."""

    looks: int
    seen_pending: int
    started: int
    slurm_wait_s: float
    phalanx_wait_s: float
    earlier: int
    later: int


def look_at(taken: Taken, at_ms: int) -> Look:
    """Decides once on what was read; nothing of it is carried out."""
    running = tuple(job for job, each in taken.state.jobs.items() if each.attempt is not None)
    pending = tuple(job for job in taken.state.jobs if job not in running)
    plan = turn(taken.state, taken.journal, (), at_ms)
    return Look(at_ms, running, pending, tuple(job for job in plan.starts if job in pending))


def add(folder: Path, look: Look) -> None:
    """Writes a look behind those before."""
    with (folder / FILE).open("a") as file:
        file.write(json.dumps(asdict(look)) + "\n")


def looks_in(folder: Path) -> list[Look]:
    """All looks so far. A last line that is not whole is left out."""
    found = []
    path = folder / FILE
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            each = json.loads(line)
        except ValueError:
            continue
        found.append(Look(each["at_ms"], *(tuple(each[key]) for key in ("running", "pending", "would_start"))))
    return found


def report(looks: Iterable[Look]) -> Report:
    """What came of it. A wait ends with the first look at which the job runs, or would."""
    seen: dict[str, int] = {}
    began: dict[str, int] = {}
    would: dict[str, int] = {}
    count = 0
    for look in looks:
        count += 1
        for job in look.pending:
            seen.setdefault(job, look.at_ms)
        for job in look.would_start:
            would.setdefault(job, look.at_ms)
        for job in look.running:
            if job in seen:
                began.setdefault(job, look.at_ms)
    # A job that Slurm started before phalanx would have is counted with Slurm's moment: its devices were taken.
    waits = [Wait(began[job] - seen[job], min(would.get(job, began[job]), began[job]) - seen[job]) for job in began]
    found = summary(waits)
    return Report(
        looks=count,
        seen_pending=len(seen),
        started=len(began),
        slurm_wait_s=found.theirs_s,
        phalanx_wait_s=found.ours_s,
        earlier=found.earlier,
        later=sum(job not in would for job in began),
    )
