"""Suppositions: the State as if one thing were otherwise, and what the real decision would make of that.

The change is made by the functions that fold events, so that what is tried is what would happen. Afterwards everything
is put back as it was, to the order of every table: a State that was asked decides on as one that was not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, fields, replace
from functools import partial
from types import TracebackType
from typing import Any

from phalanx.cluster.bits import members
from phalanx.cluster.cluster import Cluster, Health
from phalanx.engine.decide.cycle import decide
from phalanx.engine.fold import maintenance
from phalanx.engine.fold.amend import amend
from phalanx.engine.fold.ending import ended_by_itself
from phalanx.engine.fold.enqueue import enqueue, leave, shape_now
from phalanx.engine.quota.quotas import Quotas
from phalanx.engine.state.records import AttemptRecord, EquivalenceClass, JobRecord, shape_of, usage_of
from phalanx.engine.state.state import State
from phalanx.engine.transaction.transaction import Transaction
from phalanx.engine.why.change import CLUSTER_CHANGES, Change, ChangeKind, altered, changed
from phalanx.engine.why.present import present_reason
from phalanx.policy.policy import Memory, no_bound
from phalanx.protocol.action import Resize, Stop
from phalanx.protocol.event import (
    AttemptEnded,
    ClusterChanged,
    DeviceHealthChanged,
    Event,
    JobChanged,
    JobReleased,
    NodeHealthChanged,
    Outcome,
)
from phalanx.protocol.plan import Plan
from phalanx.protocol.reason import Reason
from phalanx.workload.job import Job

UNCHANGED = ("jobs", "dependents", "runs", "on_node")
"""Tables that no supposition adds to or takes from; what they hold is saved where it is touched."""

SCALARS = (int, str, float, bool, type(None))

RECORD_FIELDS = tuple(each.name for each in fields(JobRecord))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What would become of a job: it starts, with the jobs it stops or waits for, or is pending for a reason."""

    starts: bool
    reason: Reason | None = None


class Supposition:
    """A block in which changes hold; with its end they are undone.

    `memory` is a copy of what the policy remembers, for many suppositions on changes of one job: each is told to it,
    and taken back by telling that the job is what it was.
    """

    def __init__(self, state: State, memory: Memory | None = None) -> None:
        self.state = state
        self._memory = memory
        self._undo: list[Callable[[], None]] = []
        self._saved: dict[Hashable, EquivalenceClass] = {}

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
        # The lists in it are changed in place.
        state.passed = {queue: list(passed) for queue, passed in state.passed.items()}
        # What is kept beside the classes stays as it is for when they are as they were.
        state.class_index = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._undo:
            self._undo.pop()()

    def impose(self, job: str, change: Change) -> None:
        """Makes a change as an event would: it is news to the next decision, and to what the policy remembers."""
        state = self.state
        record = state.jobs[job]
        state.seq += 1
        match change.kind:
            case ChangeKind.RELEASE:
                self._save_record(record)
                record.held = False
                enqueue(state, record)
                self._tell(JobReleased(job))
            case ChangeKind.RETRY:
                self._save_record(record)
                record.not_before_ms = 0
                enqueue(state, record)
            case ChangeKind.PASS:
                self._have_alone_in_line(record)
            case ChangeKind.QUOTA:
                state.policy = replace(state.policy, allows=no_bound)
                self._look_at_all()
            case kind if kind in CLUSTER_CHANGES:
                self._take_cluster(altered(state.cluster, change))
            case ChangeKind.END:
                for other in change.ends:
                    self._end(other.job, other.attempt)
            case ChangeKind.REPAIR:
                for node in change.names:
                    self._repair(state.topology.number[node])
            case _:
                self._amend(record, changed(record.job, change))

    def verdict(self, job: str) -> Verdict:
        """What the next decision would say of a job, and what a user that asks afterwards would be told."""
        state = self.state
        plan = decide(state, state.now)
        if job in plan.starts:
            return Verdict(starts=True)
        state.head = plan.head
        state.reservations_stale = False
        if plan.reservations is not None:
            state.reservations = plan.reservations
        for told in plan.verdicts:
            shape = state.jobs[told.job].shape
            # A job that lost a claim by the plan may be the only one of its class: then it has no class yet.
            if shape in state.classes:
                self._save_class(shape)
                state.classes[shape].verdict = told.reason
        if state.cells is not None:
            return Verdict(starts=False, reason=state.reason(job))
        with Transaction(state) as transaction:
            self._carry_out(transaction, plan)
            return Verdict(starts=False, reason=present_reason(state, job))

    def _carry_out(self, transaction: Transaction, plan: Plan) -> None:
        """Has jobs have, and leave, what a plan says: what a job waits for is seen once that is so."""
        state = self.state
        for key in plan.withdrawn:
            attempt = state.jobs[key.rpartition("/")[0]].attempt
            if attempt is not None:
                transaction.unclaim(attempt.bookings)
                transaction.use(attempt.job.queue, usage_of(attempt.bookings), -1)
        for action in plan.actions:
            attempt = state.attempt(action.id.job, action.id.attempt)
            if attempt is not None and isinstance(action, Stop) and not attempt.ceding:
                transaction.cede(attempt.staying)
                transaction.use(attempt.job.queue, usage_of(attempt.staying), -1)
            elif attempt is not None and isinstance(action, Resize):
                bookings = state.bookings(attempt.job, action.placement)
                more = [booking for booking in bookings if booking not in attempt.bookings]
                less = [booking for booking in attempt.bookings if booking not in bookings]
                if transaction.hold(more):
                    transaction.use(attempt.job.queue, usage_of(more), 1)
                transaction.cede(less)
                transaction.use(attempt.job.queue, usage_of(less), -1)
        for claim in plan.claims:
            record = state.jobs[claim.job]
            bookings = state.bookings(record.job, claim.placement)
            if claim.waits:
                transaction.claim(bookings)
            else:
                transaction.hold(bookings)
            transaction.use(record.job.queue, usage_of(bookings), 1)
            self._save_record(record)
            leave(state, record)

    def _amend(self, record: JobRecord, asked: Job) -> None:
        """As if a job had been asked for otherwise."""
        state, was = self.state, record.job
        self._save_record(record)
        self._save_class(shape_of(asked, state.tells_apart))
        amend(state, record, asked)
        if self._memory is None:
            self._tell(JobChanged(asked))
        else:
            state.memory = memory = self._memory
            state.policy.observe(memory, JobChanged(asked), state.now)
            self._undo.append(lambda: state.policy.observe(memory, JobChanged(was), state.now))

    def _tell(self, event: Event) -> None:
        """Has the policy hear of an event, on a copy of what it remembers."""
        state = self.state
        if state.policy.observes_events:
            state.memory = copied(state.memory)
            state.policy.observe(state.memory, event, state.now)

    def _have_alone_in_line(self, record: JobRecord) -> None:
        """As if no other job were pending, and nothing were reserved for any: the job passes them all."""
        state = self.state
        if record.queued is None:
            return
        alone = EquivalenceClass(state.seq)
        alone.add(record.queued, record.job.id)
        if state.reserves:
            alone.lengths_ms = [record.estimate_ms]
        state.classes = {record.shape: alone}
        state.class_index = None
        state.newest_class = state.seq
        state.in_line, state.in_line_gpus = 1, record.gpus
        state.reservations = ()
        state.head = ""
        state.capacity.grown = state.topology.everything

    def _take_cluster(self, cluster: Cluster) -> None:
        """As if the cluster were another in what its queues are allotted, or when its nodes are closed."""
        state = self.state
        if cluster.queues != state.cluster.queues:
            usages = [(queue, state.usage(queue)) for queue in state.queues()]
            state.quotas = Quotas(cluster)
            state.quotas.take_over(usages)
            state.class_index = None
        closed = {name: state.capacity.health[state.topology.number[name]] for name in state.closed}
        state.cluster = cluster
        if closed:
            self._undo.append(lambda: self._set_health(closed))
            maintenance.open_again(state)
        self._look_at_all()
        self._tell(ClusterChanged(cluster))

    def _set_health(self, nodes: Mapping[str, Health]) -> None:
        for name, health in nodes.items():
            self.state.capacity.set_health(self.state.topology.number[name], health)

    def _look_at_all(self) -> None:
        """Has the next decision look at every job as if for the first time, and reserve anew."""
        state = self.state
        for shape in state.classes:
            self._save_class(shape)
        state.reservations = ()
        state.reservations_stale = True
        state.newest_class = state.seq
        for waiting in state.classes.values():
            waiting.born, waiting.verdict = state.seq, Reason.UNDECIDED
        state.capacity.grown = state.topology.everything

    def _repair(self, node: int) -> None:
        capacity = self.state.capacity
        health = capacity.health[node]
        capacity.set_health(node, Health.HEALTHY)
        self.state.reservations_stale = True
        self._undo.append(lambda: capacity.set_health(node, health))
        name = self.state.topology.nodes[node].name
        self._tell(NodeHealthChanged(name, Health.HEALTHY))
        for device in members(capacity.unhealthy[node]):
            was = capacity.device_health[node, device]
            capacity.set_device_health(node, device, Health.HEALTHY)
            self._undo.append(partial(capacity.set_device_health, node, device, was))
            self._tell(DeviceHealthChanged(name, device, Health.HEALTHY))

    def _end(self, job: str, number: int) -> None:
        """As if an attempt had ended well: its devices are free, and jobs that wait for its job may come."""
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
        self._tell(AttemptEnded(job, number, Outcome.SUCCEEDED))

    def _save_attempt(self, attempt: AttemptRecord) -> None:
        """Takes note of all that will forget an attempt when it ends."""
        state = self.state
        group, tables = dict(state.runs[attempt.group]), {}
        for booking in attempt.bookings:
            tables[booking.node] = dict(state.on_node[booking.node])
        stands, stop_reason = attempt.standing is not None, attempt.stop_reason
        standing = state.standing.key_of(attempt, state.now) if stands else ()
        if state.counts_spending:
            state.spending = deepcopy(state.spending)
        if state.policy.estimate_permille is not None:
            state.history = state.history.aside(attempt.job)
        end_ms = next((end_ms for end_ms, each in state.ends.in_order() if each is attempt), None)
        self._undo.append(lambda: take_back())

        def take_back() -> None:
            for booking in attempt.bookings:
                state.capacity.hold(booking)
                state.preemptible_gpus.add(attempt, booking, 1)
            state.suppose(attempt.job.queue, usage_of(attempt.bookings), 1)
            state.runs[attempt.group] = group
            state.on_node.update(tables)
            attempt.stop_reason = stop_reason
            if stands:
                state.stand(attempt, standing)
            if end_ms is not None:
                state.ends.expect(attempt, end_ms)

    def _save_record(self, record: JobRecord) -> None:
        """Takes note of a job and of the classes it is in or will be in."""
        values = {name: getattr(record, name) for name in RECORD_FIELDS}
        self._undo.append(lambda: _put_back(record, values))
        array = self.state.array_parked.get(record.job.array_of)
        if array is not None:
            self.state.array_parked[record.job.array_of] = dict(array)
        self._save_class(record.shape)
        if self.state.policy.shapes_gangs:
            asked = replace(record.job, gang=shape_now(self.state, record))
            self._save_class(shape_of(asked, self.state.tells_apart))

    def _save_class(self, shape: Hashable) -> None:
        waiting = self.state.classes.get(shape)
        if waiting is not None and self._saved.get(shape) is not waiting:
            self._saved[shape] = waiting
            saved = EquivalenceClass(waiting.born)
            saved.jobs, saved.lengths_ms, saved.verdict = list(waiting.jobs), list(waiting.lengths_ms), waiting.verdict
            self._undo.append(lambda: _put_back_class(waiting, saved))


def copied(memory: Any) -> Any:
    """A copy of what a policy remembers, to the last table: of what it remembers of tens of thousands of jobs in a
    fraction of the time that `deepcopy` takes.
    """
    kind = type(memory)
    if kind in SCALARS:
        return memory
    if kind is dict:
        return {key: value if type(value) in SCALARS else copied(value) for key, value in memory.items()}
    if kind is list:
        return [value if type(value) in SCALARS else copied(value) for value in memory]
    return memory if _never_changes(memory) else deepcopy(memory)


def _never_changes(value: Any) -> bool:
    return type(value) in SCALARS or (isinstance(value, tuple) and all(map(_never_changes, value)))


def _put_back(record: JobRecord, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(record, name, value)


def _put_back_class(waiting: EquivalenceClass, saved: EquivalenceClass) -> None:
    waiting.born, waiting.verdict = saved.born, saved.verdict
    waiting.jobs, waiting.lengths_ms = saved.jobs, saved.lengths_ms
