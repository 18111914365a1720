"""The past in the view: when attempts came to which phase and size, which attempts nodes have had, and their health."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection

from phalanx.cluster.cluster import Health
from phalanx.engine.state.records import Phase
from phalanx.engine.state.state import State
from phalanx.protocol.event import Finding
from phalanx.server.store.bulk import Bulk
from phalanx.server.store.past import gpus_of
from phalanx.server.store.tables import attempt_sizes, findings, job_phases, node_attempts, node_healths
from phalanx.server.view.rows import Row, slots_text, text_of

PHASES = Bulk(job_phases)
ATTEMPTS = Bulk(node_attempts)
HEALTHS = Bulk(node_healths)
SIZES = Bulk(attempt_sizes)
FINDINGS = Bulk(findings)

NOTED = (Phase.SUSPENDING, Phase.SUSPENDED, Phase.RESUMING, Phase.RESIZING, Phase.STOPPING)
"""Phases of which an attempt itself does not tell when it came to them."""


class Past:
    """What is remembered of a State to write its past: the phases of attempts that are in another than the usual ones,
    or were, and the nodes and devices that each attempt has.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._phases: dict[str, str] = {}
        self._nodes: dict[str, str] = {}
        self._slots: dict[str, str] = {}
        self._healths: list[Row] = []
        self._findings: list[Row] = []
        for attempt in state.attempts_present():
            self._nodes[attempt.key] = text_of(attempt.placement.nodes)
            self._slots[attempt.key] = slots_text(attempt)
            if attempt.phase in NOTED:
                self._phases[attempt.key] = attempt.phase.value
        for job in state.kept:
            kept = state.jobs[job].kept
            if kept is not None:
                self._phases[f"{job}/{kept.attempt}"] = Phase.SUSPENDED.value

    def note_health(self, node: str, seq: int, now: int, health: Health, reason: str) -> None:
        """Takes note of the health of a node."""
        self._healths.append({"node": node, "seq": seq, "at_ms": now, "health": health.value, "reason": reason})

    def note_finding(self, finding: Finding, seq: int, now: int) -> None:
        """Takes note of what a launcher has found."""
        about = {"job": finding.job, "number": finding.attempt, "kind": finding.kind, "task": finding.task}
        where = {"node": finding.node, "rank": finding.rank, "device": finding.device}
        self._findings.append({"seq": seq, "at_ms": now, **about, **where, "text": finding.text})

    def write(self, connection: Connection, opened: Sequence[Row], changed: Sequence[Row]) -> None:
        """Writes what follows from attempts that are new, and from those that have changed."""
        stays = [stay for row in (*opened, *changed) for stay in self._stays(row)]
        phases = [{**_about(row), "at_ms": self._state.now} for row in changed if self._is_noted(row)]
        sizes = [size for row in (*opened, *changed) for size in self._sizes(row)]
        ATTEMPTS.run(connection, stays)
        SIZES.run(connection, sizes)
        PHASES.run(connection, phases)
        HEALTHS.run(connection, self._healths)
        FINDINGS.run(connection, self._findings)
        self._healths, self._findings = [], []

    def _stays(self, row: Row) -> list[Row]:
        """The nodes that an attempt has not had before."""
        key = f"{row['job']}/{row['number']}"
        if row["phase"] == Phase.ENDED.value:
            self._nodes.pop(key, None)
            return []
        had = self._nodes.get(key)
        if had == row["nodes"]:
            return []
        self._nodes[key] = row["nodes"]
        before = msgspec.json.decode(had) if had else ()
        about = {"created_ms": row["created_ms"], "job": row["job"], "number": row["number"]}
        return [{"node": node, **about} for node in msgspec.json.decode(row["nodes"]) if node not in before]

    def _sizes(self, row: Row) -> list[Row]:
        """The size that an attempt had until now, if it is another from now on."""
        key = f"{row['job']}/{row['number']}"
        had = self._slots.pop(key, None)
        if row["phase"] != Phase.ENDED.value:
            self._slots[key] = row["slots"]
        if had is None or had == row["slots"] or row["started_ms"] is None:
            return []
        gpus = gpus_of(had)
        if gpus == gpus_of(row["slots"]):
            return []
        about = {"job": row["job"], "number": row["number"]}
        return [{**about, "seq": self._state.seq, "until_ms": self._state.now, "gpus": gpus}]

    def _is_noted(self, row: Row) -> bool:
        """Whether an attempt has come to a phase that is noted, or back from one."""
        key, phase = f"{row['job']}/{row['number']}", row["phase"]
        if phase == Phase.ENDED.value:
            self._phases.pop(key, None)
            return False
        if phase == self._phases.get(key) or (phase not in NOTED and key not in self._phases):
            return False
        self._phases[key] = phase
        return True


def _about(row: Row) -> Row:
    return {name: row[name] for name in ("job", "number", "phase", "nodes")}
