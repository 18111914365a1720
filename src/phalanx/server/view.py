"""The view: what of the State everybody may look up without asking the loop, as rows of the store.

It is written in the transaction of the records it follows from, so it is never ahead of the journal nor behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, delete, insert

from phalanx.cluster.cluster import Cluster
from phalanx.engine.event import AttemptEnded, Event, Failed, JobSubmitted, NodeHealthChanged, Progress
from phalanx.engine.plan import Plan, Reason
from phalanx.engine.records import FOREVER_MS, AttemptRecord, JobRecord, Phase, estimate_ms
from phalanx.engine.state import State
from phalanx.server.store import settings
from phalanx.server.store.bulk import Bulk
from phalanx.server.store.journal import job_of
from phalanx.server.store.tables import attempts, classes, job_labels, jobs, nodes

Row = dict[str, Any]

_json = msgspec.json.Encoder()


class Ending(NamedTuple):
    """How an attempt ended, as the record that ended it tells."""

    outcome: str
    exit_code: int | None
    reason: str


class Seen(NamedTuple):
    """An attempt as it was last written."""

    attempt: AttemptRecord
    phase: Phase
    started_ms: int
    gpus: int


ONCE = ("submit_seq", "exit_code")
"""What of a job the State does not know: told once, by the record it follows from."""

DESCRIBED = ("position", "facts", "reason")
"""What of a node does not follow from what happens on it."""

NEW_JOBS = Bulk(jobs)
CHANGED_JOBS = Bulk(jobs, keys=("number",), without=ONCE)
EXIT_CODES = Bulk(jobs, keys=("id",), without=tuple(c.name for c in jobs.columns if c.name not in ("id", "exit_code")))
NEW_LABELS = Bulk(job_labels)
NEW_ATTEMPTS = Bulk(attempts)
CHANGED_ATTEMPTS = Bulk(attempts, keys=("job", "number"))
CHANGED_NODES = Bulk(nodes, keys=("name",), without=DESCRIBED)
NODE_REASONS = Bulk(
    nodes, keys=("name",), without=tuple(c.name for c in nodes.columns if c.name not in ("name", "reason"))
)


class View:
    """Follows a State from record to record and writes what has changed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._seen: dict[str, Seen] = {attempt.job.id: _seen(attempt) for attempt in state.attempts_present()}
        self._parked: dict[str, Reason] = {
            job: record.parked for job, record in state.jobs.items() if record.parked is not None
        }
        self._timers = _timers(state)
        self._shapes: dict[object, str] = {}
        self._new: dict[str, int] = {}
        self._touched: dict[str, None] = {}
        self._endings: dict[str, Ending] = {}
        self._exit_codes: dict[str, int] = {}
        self._health: dict[str, str] = {}
        self._verdicts: dict[str, str] = {}
        self._head: str | None = None
        self._stirred = False

    def note(self, body: Event | Plan, seq: int) -> None:
        """Takes note of a record that was folded in."""
        if isinstance(body, JobSubmitted):
            self._new[body.job.id] = seq
            return
        self._stirred |= not isinstance(body, Progress)
        match body:
            case Plan():
                self._note_plan(body)
            case AttemptEnded(job=name, attempt=number, outcome=outcome, exit_code=code, reason=reason):
                self._endings.setdefault(f"{name}/{number}", Ending(outcome.value, code, reason))
                self._exit_codes[name] = code
            case Failed(action=action, reason=reason):
                self._endings.setdefault(f"{action.job}/{action.attempt}", Ending("failed", None, reason))
            case NodeHealthChanged(node=node, reason=reason):
                self._health[node] = reason
        about = job_of(body)
        if about:
            self._touched[about] = None

    def _note_plan(self, plan: Plan) -> None:
        for verdict in plan.verdicts:
            self._verdicts[self._shape(self._state.jobs[verdict.job])] = verdict.reason.value
        self._touched.update((claim.job, None) for claim in plan.claims)
        self._touched.update((action.id.job, None) for action in plan.actions)
        self._touched.update((key.rpartition("/")[0], None) for key in plan.withdrawn)

    def write(self, connection: Connection) -> None:
        """Writes what has changed since the last call."""
        busy = self._write_attempts(connection)
        timers = _timers(self._state)
        if self._stirred or timers != self._timers:
            # Who may not stand in line changes with time and with other jobs, unnamed by any record.
            self._touch_parked(list(self._parked))
        self._touch_parked([*self._touched, *self._new])
        self._stirred, self._timers = False, timers
        self._write_jobs(connection)
        self._write_nodes(connection, busy)
        self._write_verdicts(connection)

    def _write_attempts(self, connection: Connection) -> dict[str, None]:
        """Compares attempts with what they were; the nodes on which something has changed."""
        busy: dict[str, None] = {}
        opened: list[Row] = []
        changed: list[Row] = []
        for job in self._touched:
            self._compare(job, opened, changed, busy)
        if len(self._seen) != sum(map(len, self._state.runs.values())):
            # A failing node takes claims back without naming whose.
            for job, before in list(self._seen.items()):
                if self._state.jobs[job].attempt is not before.attempt:
                    self._touched[job] = None
                    self._compare(job, opened, changed, busy)
        self._endings.clear()
        NEW_ATTEMPTS.run(connection, opened)
        CHANGED_ATTEMPTS.run(connection, changed)
        return busy

    def _compare(self, job: str, opened: list[Row], changed: list[Row], busy: dict[str, None]) -> None:
        attempt, before = self._state.jobs[job].attempt, self._seen.get(job)
        now = _seen(attempt) if attempt is not None else None
        if now == before:
            return
        if before is not None and (now is None or now.attempt is not before.attempt):
            del self._seen[job]
            busy.update(dict.fromkeys(before.attempt.placement.nodes))
            changed.append(self._ended_row(before.attempt))
            before = None
        if now is not None:
            self._seen[job] = now
            busy.update(dict.fromkeys(now.attempt.placement.nodes))
            (opened if before is None else changed).append(_attempt_row(now.attempt))

    def _ended_row(self, attempt: AttemptRecord) -> Row:
        row = _attempt_row(attempt)
        ending = self._endings.get(attempt.key)
        if attempt.stop_reason is not None and (ending is None or ending.outcome != "succeeded"):
            ending = Ending("stopped", ending.exit_code if ending else None, attempt.stop_reason.value)
        if ending is None:
            ending = Ending("stopped", None, "withdrawn")
        record = self._state.jobs[attempt.job.id]
        return {
            **row,
            "phase": Phase.ENDED.value,
            "ended_ms": record.stopped_ms,
            "outcome": ending.outcome,
            "exit_code": ending.exit_code,
            "reason": ending.reason,
        }

    def _touch_parked(self, candidates: list[str]) -> None:
        """Takes note of who was put aside, or let into the line."""
        for job in candidates:
            parked = self._state.jobs[job].parked
            if parked is not self._parked.get(job):
                self._touched[job] = None
                if parked is None:
                    del self._parked[job]
                else:
                    self._parked[job] = parked

    def _write_jobs(self, connection: Connection) -> None:
        state = self._state
        for job in self._new:
            self._touched.pop(job, None)
        new = [self._job_row(state.jobs[job], seq) for job, seq in self._new.items()]
        changed = [self._job_row(state.jobs[job], -1) for job in self._touched]
        NEW_JOBS.run(connection, new)
        NEW_LABELS.run(
            connection,
            [
                {"key": key, "value": value, "number": row["number"]}
                for row in new
                if row["labels"] != "{}"
                for key, value in dict(state.jobs[row["id"]].job.labels).items()
            ],
        )
        CHANGED_JOBS.run(connection, changed)
        EXIT_CODES.run(connection, [{"id": job, "exit_code": code} for job, code in self._exit_codes.items()])
        self._new, self._touched, self._exit_codes = {}, {}, {}

    def _job_row(self, record: JobRecord, submit_seq: int) -> Row:
        job, attempt = record.job, record.attempt
        return {
            "number": record.number,
            "id": job.id,
            "name": job.name,
            "queue": job.queue,
            "user": job.user,
            "kind": job.kind.value,
            "priority": job.priority,
            "state": record.state.value,
            "held": record.held,
            "wait_reason": _wait_reason(record),
            "shape": self._shape(record) if record.queued is not None else "",
            "gpus": record.gpus,
            "nodes": _text(attempt.placement.nodes) if attempt is not None else "[]",
            "submitted_ms": record.submitted_ms,
            "started_ms": record.first_start_ms,
            "ended_ms": record.ended_ms,
            "expected_end_ms": _expected_end_ms(record),
            "attempts": record.attempts,
            "preemptions": record.preemptions,
            "exit_code": None,
            "end_reason": record.end_reason,
            "array_of": job.array_of,
            "labels": _text(dict(job.labels)) if job.labels else "{}",
            "submit_seq": submit_seq,
            "version": self._state.seq,
        }

    def _shape(self, record: JobRecord) -> str:
        """A short name for a kind of waiting job, the same in every process."""
        name = self._shapes.get(record.shape)
        if name is None:
            name = self._shapes[record.shape] = blake2b(repr(record.shape).encode(), digest_size=12).hexdigest()
        return name

    def _write_nodes(self, connection: Connection, busy: Iterable[str]) -> None:
        touched = dict.fromkeys([*busy, *self._health])
        CHANGED_NODES.run(connection, [node_row(self._state, name) for name in touched])
        NODE_REASONS.run(connection, [{"name": name, "reason": reason} for name, reason in self._health.items()])
        self._health = {}

    def _write_verdicts(self, connection: Connection) -> None:
        if self._verdicts:
            connection.execute(delete(classes).where(classes.c.shape.in_(list(self._verdicts))))
            connection.execute(insert(classes), [{"shape": s, "verdict": v} for s, v in self._verdicts.items()])
            self._verdicts = {}
        state = self._state
        head = self._shape(state.jobs[state.head]) if state.head in state.jobs else ""
        if head != self._head:
            settings.put(connection, "head", f"{state.head} {head}".encode())
            self._head = head


def write_cluster(connection: Connection, state: State, placement: str) -> None:
    """Writes what the view tells of the cluster itself."""
    connection.execute(delete(nodes))
    rows = [
        {**node_row(state, node.name), "position": number, "facts": _text(node), "reason": ""}
        for number, node in enumerate(state.topology.nodes)
    ]
    if rows:
        connection.execute(insert(nodes), rows)
    settings.put(connection, "cluster", _json.encode(about_cluster(state, placement)))


def about_cluster(state: State, placement: str) -> Row:
    """What everybody may know of the cluster as a whole."""
    cluster: Cluster = state.cluster
    return {
        "name": cluster.name,
        "levels": list(cluster.levels),
        "nodes": len(cluster.nodes),
        "gpus": cluster.gpus,
        "gpu_types": list(dict.fromkeys(node.gpu_type for node in cluster.nodes if node.gpu_type)),
        "policy": state.policy.spec,
        "placement": placement,
        "term": state.term,
    }


def node_row(state: State, name: str) -> Row:
    """What happens on a node."""
    number = state.topology.number[name]
    used, there = 0, []
    for attempt in state.on_node.get(number, {}).values():
        there.append(attempt.job.id)
        if not attempt.waits:
            for booking in attempt.bookings:
                used |= booking.devices if booking.node == number else 0
    return {
        "name": name,
        "health": state.capacity.health[number].value,
        "gpus_used": used.bit_count(),
        "jobs": _text(there),
    }


def _seen(attempt: AttemptRecord) -> Seen:
    return Seen(attempt, attempt.phase, attempt.started_ms, attempt.gpus)


def _attempt_row(attempt: AttemptRecord) -> Row:
    return {
        "job": attempt.job.id,
        "number": attempt.number,
        "phase": attempt.phase.value,
        "created_ms": attempt.created_ms,
        "started_ms": attempt.started_ms if attempt.started_ms >= 0 else None,
        "ended_ms": None,
        "outcome": None,
        "exit_code": None,
        "reason": "",
        "nodes": _text(attempt.placement.nodes),
        "slots": _text(
            [
                {"rank": slot.rank, "role": slot.role, "node": slot.node, "devices": slot.devices}
                for slot in attempt.placement.slots
            ]
        ),
    }


def _wait_reason(record: JobRecord) -> str:
    """Why a job waits that is not in line; of those in line, `classes` tells."""
    if record.final is not None:
        return ""
    if record.attempt is not None:
        if record.attempt.phase is not Phase.CLAIMED:
            return ""
        return (Reason.MAKING_ROOM if record.attempt.waits else Reason.PREPARING).value
    return record.parked.value if record.parked is not None else ""


def _expected_end_ms(record: JobRecord) -> int | None:
    length_ms = estimate_ms(record.job)
    if record.attempt is None or record.attempt.started_ms < 0 or length_ms >= FOREVER_MS:
        return None
    return record.attempt.started_ms + max(length_ms - record.executed_before_ms, 0)


def _text(value: object) -> str:
    return _json.encode(value).decode()


def _timers(state: State) -> tuple[int, object]:
    """Changes whenever the State's timers do."""
    return len(state.timers), state.timers[0] if state.timers else None
