"""The view: what of the State may be looked up without asking the loop, as rows of the store.

It is written in the transaction of the records it follows from, so it is never ahead of the journal nor behind it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert

from phalanx.cluster.bits import members
from phalanx.cluster.cluster import Health
from phalanx.engine.state.records import AttemptRecord, JobRecord, Phase, StopReason
from phalanx.engine.state.state import State
from phalanx.engine.transaction.suspension import attempt_of
from phalanx.engine.why.present import present_reason
from phalanx.placement.placement import Placement
from phalanx.protocol.event import (
    AttemptEnded,
    ClusterChanged,
    DeviceHealthChanged,
    Event,
    Failed,
    Finding,
    ForeignUse,
    JobChanged,
    JobSubmitted,
    NodeHealthChanged,
    PolicyChanged,
    Progress,
)
from phalanx.protocol.plan import Plan
from phalanx.protocol.reason import Reason
from phalanx.server.store import settings
from phalanx.server.store.bulk import Bulk
from phalanx.server.store.jobs import reported_step
from phalanx.server.store.journal import job_of
from phalanx.server.store.tables import attempts, classes, job_labels, job_queues, jobs, nodes
from phalanx.server.store.virtual_clusters import put_virtual_clusters
from phalanx.server.view.past import Past
from phalanx.server.view.rows import Row, attempt_row, ended_row, job_row, node_row
from phalanx.server.view.virtual_clusters import about_virtual_clusters


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
    placement: Placement
    gpus: int


SUSPENDED = "suspended"
SPARE = "kept for jobs that lose a node"
"""The reason of an attempt that was stopped because its job was suspended."""

REVIEWS_MAX = 16
"""Classes of pending jobs of which it is worked out anew why they are pending, each time that something is written."""

ONCE = ("submit_seq", "exit_code")
"""What of a job the State does not know: told once, by the record it follows from."""

DESCRIBED = ("position", "facts", "reason")
"""What of a node does not follow from what happens on it."""

NEW_JOBS = Bulk(jobs)
CHANGED_JOBS = Bulk(jobs, keys=("number",), without=ONCE)
EXIT_CODES = Bulk(jobs, keys=("id",), without=tuple(c.name for c in jobs.columns if c.name not in ("id", "exit_code")))
SPECS = Bulk(jobs, keys=("id",), without=tuple(c.name for c in jobs.columns if c.name not in ("id", "submit_seq")))
NEW_LABELS = Bulk(job_labels)
NEW_PLACES = Bulk(job_queues)
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
        self._kept: dict[str, AttemptRecord] = {}
        for job in state.kept:
            self._note_kept(job)
        self._parked: dict[str, Reason] = {
            job: record.parked for job, record in state.jobs.items() if record.parked is not None
        }
        self._unmet = {job: None for job, parked in self._parked.items() if parked is Reason.DEPENDENCY_FAILED}
        self._timers = _timers(state)
        self._shapes: dict[object, str] = {}
        self._new: dict[str, int] = {}
        self._touched: dict[str, None] = {}
        self._endings: dict[str, Ending] = {}
        self._steps: dict[str, int] = {}
        self._exit_codes: dict[str, int] = {}
        self._specs: dict[str, int] = {}
        self._health: dict[str, str] = {}
        self._devices: dict[str, None] = {}
        self._spares: dict[str, None] = {}
        self._verdicts: dict[str, str] = {}
        self._told: dict[str, Reason] = {}
        self._head: str | None = None
        self._virtual_clusters: dict[str, Row] | None = None
        self._stirred = False
        self._to_review: list[Hashable] = []
        self._past = Past(state)

    def note(self, body: Event | Plan, seq: int) -> None:
        """Takes note of a record that was folded in."""
        if isinstance(body, JobSubmitted):
            self._new[body.job.id] = seq
            return
        self._stirred |= not isinstance(body, Progress | Finding)
        match body:
            case Plan():
                self._note_plan(body)
            case AttemptEnded(job=name, attempt=number, outcome=outcome, exit_code=code, reason=reason):
                self._endings.setdefault(f"{name}/{number}", Ending(outcome.value, code, reason))
                self._exit_codes[name] = code
            case Progress(job=name, attempt=number, step=step):
                self._steps[f"{name}/{number}"] = step
            case Finding():
                self._past.note_finding(body, seq, self._state.now)
            case JobChanged(job=job):
                self._specs[job.id] = seq
            case Failed(action=action, reason=reason):
                self._endings.setdefault(f"{action.job}/{action.attempt}", Ending("failed", None, reason))
            case NodeHealthChanged(node=node, health=health, reason=reason):
                self._health[node] = reason
                self._past.note_health(node, seq, self._state.now, health, reason)
            case DeviceHealthChanged(node=node, device=device, health=health, reason=reason):
                self._devices[node] = None
                number, capacity = self._state.topology.number[node], self._state.capacity
                if capacity.health[number] is Health.HEALTHY and (reason or not capacity.unhealthy[number]):
                    # Why the node takes no work is more important, and so is why another GPU of it takes none.
                    self._health[node] = f"GPU {device} {health.value}: {reason}" if reason else ""
            case ForeignUse(node=node):
                self._devices[node] = None
            case ClusterChanged() | PolicyChanged():
                # Which jobs are of one kind depends on both.
                live = (job for job, known in self._state.jobs.items() if known.final is None)
                self._touched.update(dict.fromkeys(live))
        about = job_of(body)
        if about:
            self._touched[about] = None

    def _note_plan(self, plan: Plan) -> None:
        for verdict in plan.verdicts:
            self._note_verdict(self._state.jobs[verdict.job], verdict.reason)
        self._touched.update((claim.job, None) for claim in plan.claims)
        self._touched.update((action.id.job, None) for action in plan.actions)
        self._touched.update((key.rpartition("/")[0], None) for key in plan.withdrawn)

    def write_all(self, connection: Connection, submitted: Mapping[str, int]) -> None:
        """Writes all that the State tells of jobs, where nothing was written before. `submitted` are the records that
        say what was asked for.
        """
        self._new = dict(submitted)
        NEW_ATTEMPTS.run(connection, [attempt_row(seen.attempt) for seen in self._seen.values()])
        NEW_ATTEMPTS.run(connection, [attempt_row(kept) for kept in self._kept.values()])
        self._stirred = True
        self.write(connection)

    def write(self, connection: Connection) -> None:
        """Writes what has changed since the last call."""
        busy = self._write_attempts(connection)
        self._write_virtual_clusters(connection)
        timers = _timers(self._state)
        if self._stirred or timers != self._timers:
            # Which jobs are ineligible changes with time and with other jobs, unnamed by any record.
            self._touch_parked(list(self._parked))
        self._touch_parked([*self._touched, *self._new])
        self._write_jobs(connection)
        self._write_nodes(connection, busy)
        if self._stirred:
            self._review()
        self._stirred, self._timers = False, timers
        self._write_verdicts(connection)

    def _write_attempts(self, connection: Connection) -> dict[str, None]:
        """Compares attempts with what they were; the nodes on which something has changed."""
        busy: dict[str, None] = {}
        opened: list[Row] = []
        changed: list[Row] = []
        for job in self._touched:
            self._compare(job, opened, changed, busy)
        if len(self._seen) != sum(map(len, self._state.runs.values())):
            # A failing node takes claims back without naming their jobs.
            for job, before in list(self._seen.items()):
                if self._state.jobs[job].attempt is not before.attempt:
                    self._touched[job] = None
                    self._compare(job, opened, changed, busy)
        self._endings.clear()
        for row in changed:
            if row["step"] is None and row["durable_step"] is not None:
                # It reported before the server was last started.
                row["step"] = reported_step(connection, row["job"], row["number"])
        NEW_ATTEMPTS.run(connection, opened)
        CHANGED_ATTEMPTS.run(connection, changed)
        self._past.write(connection, opened, changed)
        return busy

    def _compare(self, job: str, opened: list[Row], changed: list[Row], busy: dict[str, None]) -> None:
        attempt, before, kept = self._state.jobs[job].attempt, self._seen.get(job), self._kept.pop(job, None)
        now = _seen(attempt) if attempt is not None else None
        if before is not None and (now is None or now.attempt is not before.attempt):
            del self._seen[job]
            busy.update(dict.fromkeys(before.attempt.placement.nodes))
            kept, before = before.attempt, None
        self._note_kept(job)
        if kept is not None and (now is None or now.attempt.number != kept.number):
            is_suspended = job in self._kept and self._kept[job].number == kept.number
            changed.append(attempt_row(self._kept[job]) if is_suspended else self._ended_row(kept))
            kept = None
        if now is not None and now != before:
            self._seen[job] = now
            busy.update(dict.fromkeys(now.attempt.placement.nodes))
            if before is not None:
                # One that has shrunk has left some.
                busy.update(dict.fromkeys(before.placement.nodes))
            (opened if before is None and kept is None else changed).append(attempt_row(now.attempt))

    def _note_kept(self, job: str) -> None:
        """Takes note of an attempt that is suspended."""
        record = self._state.jobs[job]
        if record.kept is not None:
            self._kept[job] = attempt_of(record, record.kept, self._state.now)

    def _ended_row(self, attempt: AttemptRecord) -> Row:
        ending = self._endings.get(attempt.key)
        if attempt.stop_reason is not None and (ending is None or ending.outcome != "succeeded"):
            ending = Ending("stopped", ending.exit_code if ending else None, self._stop_reason(attempt))
        if ending is None:
            ending = Ending("stopped", None, "withdrawn")
        ended_ms = self._state.jobs[attempt.job.id].stopped_ms
        assert ended_ms is not None, f"attempt {attempt.key} has ended"
        row = ended_row(attempt, ended_ms, self._steps.pop(attempt.key, None))
        if ending.outcome == "succeeded":
            row |= {"lost_ms": None, "lost_gpu_ms": None}
        return row | {"outcome": ending.outcome, "exit_code": ending.exit_code, "reason": ending.reason}

    def _stop_reason(self, attempt: AttemptRecord) -> str:
        """Why it was stopped. A job is suspended by holding and requeuing it: the attempt is not told apart."""
        assert attempt.stop_reason is not None, f"attempt {attempt.key} was stopped"
        is_held = self._state.jobs[attempt.job.id].held
        return SUSPENDED if is_held and attempt.stop_reason is StopReason.REQUEUED else attempt.stop_reason.value

    def _touch_parked(self, candidates: list[str]) -> None:
        """Takes note of jobs that became ineligible, or were enqueued."""
        for job in candidates:
            parked = self._state.jobs[job].parked
            if parked is not self._parked.get(job):
                self._touched[job] = None
                if parked is None:
                    del self._parked[job]
                else:
                    self._parked[job] = parked
                if parked is Reason.DEPENDENCY_FAILED:
                    self._unmet[job] = None

    def take_unmet(self) -> list[str]:
        """Jobs that came to wait for an outcome that cannot come any more, since this was last asked."""
        unmet, self._unmet = list(self._unmet), {}
        return unmet

    def _write_jobs(self, connection: Connection) -> None:
        state = self._state
        for job in self._new:
            self._touched.pop(job, None)
        new = [self._row(state.jobs[job], seq) for job, seq in self._new.items()]
        changed = [self._row(state.jobs[job]) for job in self._touched]
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
        NEW_PLACES.run(connection, [{"queue": queue, "number": row["number"]} for row in new for queue in _above(row)])
        CHANGED_JOBS.run(connection, changed)
        EXIT_CODES.run(connection, [{"id": job, "exit_code": code} for job, code in self._exit_codes.items()])
        SPECS.run(connection, [{"id": job, "submit_seq": seq} for job, seq in self._specs.items()])
        self._new, self._touched, self._exit_codes, self._specs = {}, {}, {}, {}

    def _row(self, record: JobRecord, submit_seq: int = -1) -> Row:
        shape = ""
        if record.queued is not None:
            shape = self._shape(record)
            # A class without jobs for a while is looked at anew.
            self._note_verdict(record, self._state.classes[record.shape].verdict)
        return job_row(record, shape, self._state.seq, submit_seq)

    def _note_verdict(self, record: JobRecord, verdict: Reason) -> None:
        shape = self._shape(record)
        if self._told.get(shape) is not verdict:
            self._told[shape] = verdict
            self._verdicts[shape] = verdict.value

    def _review(self) -> None:
        """Has what is told of some classes of pending jobs be true of the present, as `why` works it out.

        A decision looks only at jobs that could start, so what it said of the rest grows old. A few at a time, in turn.
        """
        kinds = self._state.classes
        for _ in range(min(REVIEWS_MAX, len(kinds))):
            if not self._to_review:
                self._to_review = list(kinds)
            kind = kinds.get(self._to_review.pop())
            if kind is None:
                continue
            record = self._state.jobs[kind.head[1]]
            reason = present_reason(self._state, record.job.id)
            if reason is not None and reason is not Reason.BEHIND:
                # A job behind the head is told on request.
                self._note_verdict(record, reason)

    def _shape(self, record: JobRecord) -> str:
        """A short name for a class of pending jobs, the same in every process."""
        name = self._shapes.get(record.shape)
        if name is None:
            name = self._shapes[record.shape] = blake2b(repr(record.shape).encode(), digest_size=12).hexdigest()
        return name

    def _write_nodes(self, connection: Connection, busy: Iterable[str]) -> None:
        known = self._state.topology.number
        self._follow_spares()
        touched = [name for name in dict.fromkeys([*busy, *self._health, *self._devices]) if name in known]
        CHANGED_NODES.run(connection, [node_row(self._state, name) for name in touched])
        NODE_REASONS.run(connection, [{"name": name, "reason": reason} for name, reason in self._health.items()])
        self._health, self._devices = {}, {}

    def _follow_spares(self) -> None:
        """Which nodes are spares follows from what runs, unsaid by any record."""
        mask, nodes = self._state.capacity.with_health[Health.SPARE], self._state.topology.nodes
        spares = {nodes[number].name: None for number in members(mask)} if mask else {}
        self._health |= {name: "" for name in self._spares if name not in spares and name not in self._health}
        self._health |= {name: SPARE for name in spares if name not in self._spares}
        self._spares = spares

    def _write_virtual_clusters(self, connection: Connection) -> None:
        if not self._stirred or (self._state.cells is None and self._virtual_clusters == {}):
            return
        told = about_virtual_clusters(self._state)
        if told != self._virtual_clusters:
            put_virtual_clusters(connection, told)
            self._virtual_clusters = told

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


def _seen(attempt: AttemptRecord) -> Seen:
    return Seen(attempt, attempt.phase, attempt.started_ms, attempt.placement, attempt.gpus)


def _above(row: Row) -> list[str]:
    """The queue of a job, and each above it."""
    parts = row["queue"].split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _timers(state: State) -> tuple[int, object]:
    """Changes whenever the State's timers do."""
    return len(state.timers), state.timers[0] if state.timers else None
