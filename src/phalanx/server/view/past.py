"""The past in the view: when attempts came to which phase, which attempts nodes have had, and how healthy they were."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection

from phalanx.cluster.cluster import Health
from phalanx.engine.state.records import Phase
from phalanx.engine.state.state import State
from phalanx.server.store.bulk import Bulk
from phalanx.server.store.tables import job_phases, node_attempts, node_healths
from phalanx.server.view.rows import Row, text_of

PHASES = Bulk(job_phases)
ATTEMPTS = Bulk(node_attempts)
HEALTHS = Bulk(node_healths)

NOTED = (Phase.SUSPENDING, Phase.SUSPENDED, Phase.RESUMING, Phase.RESIZING, Phase.STOPPING)
"""Phases of which an attempt itself does not tell when it came to them."""


class Past:
    """What is remembered of a State to write its past: the phases of attempts that are in another than the usual ones,
    or were, and the nodes that each attempt has.
    """

    def __init__(self, state: State) -> None:
        self._phases: dict[str, str] = {}
        self._nodes: dict[str, str] = {}
        self._healths: list[Row] = []
        for attempt in state.attempts_present():
            self._nodes[attempt.key] = text_of(attempt.placement.nodes)
            if attempt.phase in NOTED:
                self._phases[attempt.key] = attempt.phase.value
        for job in state.kept:
            kept = state.jobs[job].kept
            if kept is not None:
                self._phases[f"{job}/{kept.attempt}"] = Phase.SUSPENDED.value

    def note_health(self, node: str, seq: int, now: int, health: Health, reason: str) -> None:
        """Takes note of the health of a node."""
        self._healths.append({"node": node, "seq": seq, "at_ms": now, "health": health.value, "reason": reason})

    def write(self, connection: Connection, opened: Sequence[Row], changed: Sequence[Row], now: int) -> None:
        """Writes what follows from attempts that are new, and from those that have changed."""
        stays = [stay for row in (*opened, *changed) for stay in self._stays(row)]
        phases = [{**_about(row), "at_ms": now} for row in changed if self._is_noted(row)]
        ATTEMPTS.run(connection, stays)
        PHASES.run(connection, phases)
        HEALTHS.run(connection, self._healths)
        self._healths = []

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
