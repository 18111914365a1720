"""Suppositions: the State as if one thing were otherwise, and what the real decision would make of that.

The change is made by the functions that fold events, so that what is tried is what would happen. Afterwards everything
is put back as it was, to the order of every table: a State that was asked decides on as one that was not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from copy import copy, deepcopy
from dataclasses import dataclass, fields, replace
from functools import partial
from types import TracebackType
from typing import Any

from phalanx.cluster.cluster import Cluster, Health
from phalanx.cluster.queues import Queue
from phalanx.engine.amend import amend
from phalanx.engine.attempts import ended_by_itself
from phalanx.engine.change import Change, ChangeKind, changed
from phalanx.engine.cycle import decide
from phalanx.engine.event import AttemptEnded, Outcome
from phalanx.engine.plan import Reason
from phalanx.engine.quotas import Quotas
from phalanx.engine.records import AttemptRecord, JobRecord, WaitingClass, shape_of, usage_of
from phalanx.engine.state import State
from phalanx.engine.waiting import line_up, shape_now
from phalanx.policy.policy import Reserve, always, as_asked, remember_nothing

UNCHANGED = ("jobs", "dependents", "runs", "on_node")
"""Tables that no supposition adds to or takes from; what they hold is saved where it is touched."""

RECORD_FIELDS = tuple(each.name for each in fields(JobRecord))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What would become of a job: it starts, with whom it stops or waits for, or waits for a reason."""

    starts: bool
    reason: Reason | None = None


class Supposition:
    """A block in which changes hold; with its end they are undone."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Supposition:
        state = self.state
        saved = {
            name: copy(value) if isinstance(value, dict | list) else value
            for name, value in vars(state).items()
            if name not in UNCHANGED
        }
        grown = state.capacity.grown
        if state.cells is not None:
            state.cells.open(state.capacity)
            self._undo.append(state.cells.close)
        self._undo.append(lambda: setattr(state.capacity, "grown", grown))
        self._undo.append(lambda: vars(state).update(saved))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._undo:
            self._undo.pop()()

    def impose(self, job: str, change: Change) -> None:
        """Makes a change as an event would: it is news to the next decision."""
        state = self.state
        record = state.jobs[job]
        state.seq += 1
        match change.kind:
            case ChangeKind.RELEASE:
                self._save_record(record)
                record.held = False
                line_up(state, record)
            case ChangeKind.RETRY:
                self._save_record(record)
                record.not_before_ms = 0
                line_up(state, record)
            case ChangeKind.PASS:
                self._let_everybody_pass()
            case ChangeKind.QUOTA:
                state.quotas = Quotas(Cluster(()))
                self._look_at_all()
            case ChangeKind.BUDGET:
                self._reallot(change.names, lambda queue: replace(queue, budget_gpu_ms=None))
            case ChangeKind.MIN_RUN:
                trails = (state.quotas.accounts[queue].trail for queue in change.names)
                paths = dict.fromkeys(each.path for trail in trails for each in trail)
                self._reallot(paths, partial(_with_shorter_runs, sooner_ms=change.amount))
            case ChangeKind.MAINTENANCE:
                kept = tuple(window for window in state.cluster.maintenance if window.name not in change.names)
                state.cluster = replace(state.cluster, maintenance=kept)
                self._look_at_all()
            case ChangeKind.END:
                for other in change.ends:
                    self._end(other.job, other.attempt)
            case ChangeKind.REPAIR:
                for node in change.names:
                    self._repair(state.topology.number[node])
            case _:
                asked = changed(record.job, change)
                self._save_record(record)
                self._save_class(shape_of(asked, state.tells_apart))
                amend(state, record, asked)

    def verdict(self, job: str) -> Verdict:
        """What the next decision would say of a job."""
        state = self.state
        plan = decide(state, state.now)
        if job in plan.starts:
            return Verdict(starts=True)
        state.head = plan.head
        for told in plan.verdicts:
            shape = state.jobs[told.job].shape
            self._save_class(shape)
            state.classes[shape].verdict = told.reason
        return Verdict(starts=False, reason=state.reason(job))

    def _let_everybody_pass(self) -> None:
        """As if the policy held nobody up behind a head, and kept nothing free for who waits: all are looked at."""
        state = self.state
        state.policy = replace(state.policy, backfill=always, reserve=Reserve.NOBODY)
        state.waits_are_limited = False
        state.reservations = ()
        state.head = ""
        self._look_at_all()

    def _reallot(self, queues: Iterable[str], otherwise: Callable[[Queue], Queue]) -> None:
        """As if queues were allotted something else; what they have stays."""
        for path in queues:
            account = self.state.quotas.accounts[path]
            allotted = account.queue
            account.queue = otherwise(allotted)
            self._undo.append(partial(setattr, account, "queue", allotted))
        self._look_at_all()

    def _look_at_all(self) -> None:
        """Has the next decision look at everybody as if for the first time."""
        verdicts = [(waiting, waiting.verdict) for waiting in self.state.classes.values()]
        self._undo.append(lambda: _judge_again(verdicts))
        _judge_again([(waiting, Reason.UNDECIDED) for waiting, _ in verdicts])
        self.state.capacity.grown = self.state.topology.everything

    def _repair(self, node: int) -> None:
        capacity = self.state.capacity
        health = capacity.health[node]
        capacity.set_health(node, Health.HEALTHY)
        self.state.surprised = True
        self._undo.append(lambda: capacity.set_health(node, health))

    def _end(self, job: str, number: int) -> None:
        """As if an attempt had ended well: its devices are free, and who waits for its job may come."""
        state = self.state
        attempt = state.attempt(job, number)
        if attempt is None:
            return
        record = state.jobs[job]
        parked = state.array_parked.get(record.job.array_of, {})
        for other in (job, *state.dependents.get(job, ()), *parked):
            self._save_record(state.jobs[other])
        self._save_attempt(attempt)
        ended_by_itself(state, attempt, Outcome.SUCCEEDED, "")
        if state.policy.observe is not remember_nothing:
            state.memory = deepcopy(state.memory)
            state.policy.observe(state.memory, AttemptEnded(job, number, Outcome.SUCCEEDED), state.now)

    def _save_attempt(self, attempt: AttemptRecord) -> None:
        """Takes note of all that will forget an attempt when it ends."""
        state = self.state
        group, tables = dict(state.runs[attempt.group]), {}
        for booking in attempt.bookings:
            tables[booking.node] = dict(state.on_node[booking.node])
        standing, stop_reason = attempt.standing, attempt.stop_reason
        if state.counts_spending:
            state.spending = deepcopy(state.spending)
        if state.policy.estimate_permille is not None:
            state.history = state.history.aside(attempt.job)
        end_ms = next((end_ms for end_ms, each in state.ends.in_order() if each is attempt), None)
        self._undo.append(lambda: take_back())

        def take_back() -> None:
            for booking in attempt.bookings:
                state.capacity.hold(booking)
                state.stoppable.add(attempt, booking, 1)
            state.suppose(attempt.job.queue, usage_of(attempt.bookings), 1)
            state.runs[attempt.group] = group
            state.on_node.update(tables)
            attempt.stop_reason = stop_reason
            if standing is not None:
                state.standing.add(attempt, standing)
            if end_ms is not None:
                state.ends.expect(attempt, end_ms)

    def _save_record(self, record: JobRecord) -> None:
        """Takes note of a job and of the classes it stands in or will stand in."""
        values = {name: getattr(record, name) for name in RECORD_FIELDS}
        self._undo.append(lambda: _put_back(record, values))
        array = self.state.array_parked.get(record.job.array_of)
        if array is not None:
            self.state.array_parked[record.job.array_of] = dict(array)
        self._save_class(record.shape)
        if self.state.policy.shape is not as_asked:
            asked = replace(record.job, gang=shape_now(self.state, record))
            self._save_class(shape_of(asked, self.state.tells_apart))

    def _save_class(self, shape: Hashable) -> None:
        waiting = self.state.classes.get(shape)
        if waiting is not None:
            saved = WaitingClass(waiting.born)
            saved.jobs, saved.lengths_ms, saved.verdict = list(waiting.jobs), list(waiting.lengths_ms), waiting.verdict
            self._undo.append(lambda: _put_back_class(waiting, saved))


def _with_shorter_runs(queue: Queue, sooner_ms: int) -> Queue:
    """A queue that lets its jobs be stopped so much sooner, for whomever."""
    reclaim_ms = queue.min_run_reclaim_ms
    return replace(
        queue,
        min_run_ms=max(queue.min_run_ms - sooner_ms, 0),
        min_run_reclaim_ms=None if reclaim_ms is None else max(reclaim_ms - sooner_ms, 0),
    )


def _put_back(record: JobRecord, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(record, name, value)


def _put_back_class(waiting: WaitingClass, saved: WaitingClass) -> None:
    waiting.born, waiting.verdict = saved.born, saved.verdict
    waiting.jobs, waiting.lengths_ms = saved.jobs, saved.lengths_ms


def _judge_again(verdicts: Iterable[tuple[WaitingClass, Reason]]) -> None:
    for waiting, verdict in verdicts:
        waiting.verdict = verdict
