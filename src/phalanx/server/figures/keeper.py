"""The keeper of figures: follows the State of the planner, and writes how things are and how they were."""

from __future__ import annotations

import logging
import sqlite3
import time
from pathlib import Path

from sqlalchemy import Connection

from phalanx.cluster.bits import members
from phalanx.engine.state.journal import Record, decode
from phalanx.engine.state.state import State
from phalanx.placement.fragmentation import largest_gang
from phalanx.server.figures.attention import attention
from phalanx.server.figures.cells import bound_cells
from phalanx.server.figures.loads import Loads
from phalanx.server.figures.outlook import Level, Load, Outlook, write_outlook
from phalanx.server.figures.sample import promised_devices, sample, sample_jobs
from phalanx.server.figures.series import FILE, STEP_MS, SeriesWriter
from phalanx.server.store.journal import said_by

OUTLOOK_S = 2.0
RECALLED_MAX = 2_000
"""Running jobs whose last report is looked up at a start."""


class Keeper:
    """Looks now and then at a State that the planner keeps up to date."""

    def __init__(self, data: Path, run: Path, log: logging.Logger) -> None:
        self._run = run
        self._log = log
        self._loads = Loads()
        self._path = data / FILE
        self._series: SeriesWriter | None = None
        self._told_s = float("-inf")
        self._sampled_ms = 0

    def recall(self, connection: Connection, state: State) -> None:
        """Takes note of what running jobs said last."""
        for attempt in list(state.attempts_present())[:RECALLED_MAX]:
            for entry in said_by(connection, attempt.job.id, "Progress", state.seq, 1):
                self._loads.note(decode(entry.line).body, entry.now_ms)

    def note(self, record: Record) -> None:
        """Takes note of a record that was folded in."""
        self._loads.note(record.body, record.now)

    def look_after(self, state: State, now_ms: int) -> None:
        """Writes what is due."""
        if now_ms - now_ms % STEP_MS != self._sampled_ms:
            self._sampled_ms = now_ms - now_ms % STEP_MS
            self._sample(state, now_ms)
        if time.monotonic() - self._told_s >= OUTLOOK_S:
            self._told_s = time.monotonic()
            write_outlook(self._run, outlook(state, self._loads, now_ms))

    def _sample(self, state: State, now_ms: int) -> None:
        running = {attempt.job.id for attempt in state.attempts_present()}
        self._loads.keep(running)
        try:
            if self._series is None:
                self._series = SeriesWriter(self._path)
            self._series.add(sample(state, self._loads), now_ms)
            self._series.add_jobs(sample_jobs(state, self._loads), now_ms)
            self._series.finish_jobs({f"job:{job}" for job in running})
        except sqlite3.Error as error:
            # A full disk or a file that cannot be opened costs figures and nothing else, until it is well again.
            self._log.warning(f"{self._path}: figures were not written: {error}")


def outlook(state: State, loads: Loads, now_ms: int) -> Outlook:
    """What only the whole State tells."""
    names = [node.name for node in state.topology.nodes]
    said = {
        job: Load(round(each.gpu_busy, 3) if each.measures else -1.0, round(each.memory_gb, 2))
        for job, each in loads.said.items()
    }
    reserved = {names[number]: bits for number, bits in promised_devices(state).items()}
    return Outlook(now_ms, said, reserved, levels_of(state), attention(state, loads, now_ms), bound_cells(state))


def levels_of(state: State) -> list[Level]:
    """The largest gang of single GPUs that could start now: in the whole cluster, and in one domain of each level."""
    capacity, topology = state.capacity, state.topology
    free = capacity.free_gpus(capacity.open)
    found = [Level("cluster", largest_gang(capacity, 1), free, "")]
    for level, domains in topology.domains.items():
        best = max(domains, key=lambda domain: capacity.free_gpus(domain.nodes & capacity.open), default=None)
        if best is not None:
            found.append(Level(level, capacity.free_gpus(best.nodes & capacity.open), free, best.name))
    node = max(members(capacity.open), key=lambda number: capacity.free[number].bit_count(), default=None)
    if node is not None:
        found.append(Level("node", capacity.free[node].bit_count(), free, topology.nodes[node].name))
    return found
