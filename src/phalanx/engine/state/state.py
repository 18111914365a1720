"""The State: the fold of all records. `apply` changes it, `decide` reads it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappush
from typing import Any

from phalanx.cluster.bits import members
from phalanx.cluster.capacity import Booking, Capacity
from phalanx.cluster.cluster import Cluster, Health
from phalanx.cluster.device import Portion
from phalanx.cluster.queues import Queue
from phalanx.cluster.topology import Topology
from phalanx.engine.quota.quotas import Quotas
from phalanx.engine.quota.shortfall import Shortfall
from phalanx.engine.quota.spending import Spending
from phalanx.engine.state.cells import Tenancy
from phalanx.engine.state.classes import ClassIndex, index_of
from phalanx.engine.state.ends import Ends
from phalanx.engine.state.errors import UnknownJobError
from phalanx.engine.state.gangs import Gangs
from phalanx.engine.state.history import History
from phalanx.engine.state.journal import Digest
from phalanx.engine.state.preemptible import PreemptibleGpus
from phalanx.engine.state.records import (
    GOES_ON,
    OVERDUE,
    UNSAID_MS,
    AttemptRecord,
    EquivalenceClass,
    JobRecord,
    Phase,
    PreemptionGroup,
    StopReason,
)
from phalanx.engine.state.running_order import RunningOrder
from phalanx.engine.state.timer import Timer
from phalanx.placement.fit import Fit
from phalanx.placement.pack import Packing
from phalanx.placement.placement import Placement
from phalanx.policy.policy import Key, Memory, Minds, Policy, Reserve, Targets
from phalanx.policy.registry import policy as policy_named
from phalanx.policy.view import Adjustment, NodeView, Usage
from phalanx.protocol.action import ActionId, Repartition
from phalanx.protocol.event import ForeignUse, SuspendRates
from phalanx.protocol.plan import Reservation
from phalanx.protocol.reason import Reason
from phalanx.workload.halving import Contest
from phalanx.workload.job import Job

NOTHING = Usage()


class State:
    """Everything phalanx knows. Built by applying the records of a journal, the first of which defines the cluster."""

    def __init__(self) -> None:
        self.now = 0
        self.seq = -1
        self.term = 0
        self.digest = Digest()
        self.jobs: dict[str, JobRecord] = {}
        self.classes: dict[Hashable, EquivalenceClass] = {}
        self.class_index: ClassIndex | None = None
        self.runs: dict[PreemptionGroup, dict[str, AttemptRecord]] = {}
        self.leaving: dict[str, AttemptRecord] = {}
        self.waiting_claims: dict[str, AttemptRecord] = {}
        self.elastic: dict[str, AttemptRecord] = {}
        self.scaled: dict[str, None] = {}
        self.saving: dict[str, AttemptRecord] = {}
        self.revocable: dict[str, AttemptRecord] = {}
        self.reviews: dict[str, None] = {}
        self.adjustments: dict[str, Adjustment] = {}
        self.preparing: dict[str, AttemptRecord] = {}
        self.cuts: dict[ActionId, Repartition] = {}
        self.to_stop: dict[str, StopReason] = {}
        self.on_node: dict[int, dict[str, AttemptRecord]] = {}
        self.made_way: dict[str, dict[str, None]] = {}
        self.dependents: dict[str, dict[str, None]] = {}
        self.array_active: dict[str, int] = {}
        self.array_parked: dict[str, dict[str, None]] = {}
        self.timers: list[Timer] = []
        self.timer_count = 0
        self.head = ""
        self.clean_seq = -1
        self.newest_class = -1
        self.opened_count = 0
        self.in_line = 0
        self.in_line_gpus = 0
        self.standing = RunningOrder()
        self.ends = Ends()
        self.reservations: tuple[Reservation, ...] = ()
        self.reservations_stale = False
        self.waits_are_limited = False
        self._settled_seq = -1
        self._usage: dict[str, Usage] = {}
        self.spending = Spending()
        self.history = History()
        self.contests: dict[str, Contest] = {}
        self.memory: Memory = {}
        self.policy: Policy = policy_named("fifo")
        self.cluster_to_be: Cluster | None = None
        self.lacks: tuple[str, ...] = ()
        self.suspend: SuspendRates | None = None
        self.kept: dict[str, None] = {}
        self.replacing: dict[str, None] = {}
        self.foreign: dict[str, ForeignUse] = {}
        self.foreign_short: dict[str, None] = {}
        self.passed: dict[str, list[tuple[int, int, str]]] = {}
        self.first_impatient: dict[str, str] = {}
        self.looks_for_first: dict[str, int] = {}
        self.patience_timers: dict[str, int] = {}
        self.retiring: dict[str, Health] = {}
        self.closed: dict[str, Health] = {}
        self.defragments_at_ms = 0
        self.defragmented_ms = -1
        self.define(Cluster(()))

    def __getstate__(self) -> dict[str, Any]:
        """What a saved State holds: the policy by its name."""
        return {**self.__dict__, "policy": self.policy.spec, "_views": {}, "class_index": None, "made_way": {}}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        self.policy = policy_named(saved["policy"])

    def define(self, cluster: Cluster) -> None:
        """Takes on a cluster."""
        self.cluster = cluster
        self.topology = Topology(cluster)
        self.capacity = Capacity(self.topology)
        self.fit = Fit(self.capacity)
        self.class_index = None
        self.gangs = Gangs()
        self.packing = Packing()
        self.preemptible_gpus = PreemptibleGpus(len(cluster.nodes))
        self.quotas = Quotas(cluster)
        self.cells = Tenancy(cluster.cells) if cluster.cells is not None else None
        self._total = Usage(*(amount or 0 for amount in cluster.total))
        self._views: dict[int, tuple[int, NodeView]] = {}

    def count_preemptible(self) -> None:
        """Begins to count which attempts could be stopped or moved where, if any ever is."""
        if (self.makes_room or self.cluster.defragment_ms) and not self.preemptible_gpus.counting:
            self.preemptible_gpus.counting = True
            for attempt in self.attempts():
                for booking in attempt.bookings:
                    self.preemptible_gpus.add(attempt, booking, 1)

    @property
    def total(self) -> Usage:
        """What the cluster has."""
        return self._total

    @property
    def free_gpus(self) -> int:
        """Free GPUs on nodes that take work."""
        return self.capacity.free_total

    def nodes(self) -> tuple[NodeView, ...]:
        """The nodes that take work, and the jobs there but for terminating ones."""
        versions, views, found = self.capacity.versions, self._views, []
        for node in members(self.capacity.open):
            seen = views.get(node)
            if seen is None or seen[0] != versions[node]:
                seen = views[node] = (versions[node], self._node(node))
            found.append(seen[1])
        return tuple(found)

    def _is_leaving(self, job: str) -> bool:
        attempt = self.jobs[job].attempt
        return attempt is not None and attempt.ceding

    def _node(self, node: int) -> NodeView:
        jobs: dict[str, int] = {}
        for attempt in self.on_node.get(node, {}).values():
            if not attempt.ceding:
                here = (booking.devices.bit_count() for booking in attempt.bookings if booking.node == node)
                jobs[attempt.job.id] = sum(here)
        capacity = self.capacity
        # Jobs that the present decision puts on shared devices are known by what they hold only.
        new: dict[str, int] = {}
        for device in members(capacity.shared[node]):
            for holder in capacity.loads[node, device].holders:
                job = holder.rpartition("#")[0]
                if job not in jobs and not self._is_leaving(job):
                    new[job] = new.get(job, 0) + 1
        jobs.update(new)
        gpus = (capacity.all_devices[node] & ~capacity.unhealthy[node]).bit_count()
        return NodeView(self.topology.nodes[node].name, gpus, capacity.free[node].bit_count(), jobs)

    def job(self, name: str) -> JobRecord:
        """A job that was submitted."""
        return self.record(name)

    def sharing(self, job: str) -> tuple[dict[str, Portion], ...]:
        """The jobs that run on each device that a job has a share of, with what each has there; the job itself too."""
        attempt = self.jobs[job].attempt
        found: dict[tuple[int, int], dict[str, Portion]] = {}
        runs = {job: True}
        for booking in attempt.bookings if attempt is not None else ():
            for device in members(booking.devices if booking.portion is not None else 0):
                there = found[booking.node, device] = {}
                for holder, portion in self.capacity.load(booking.node, device).holders.items():
                    name = holder.rpartition("#")[0]
                    if name not in runs:
                        runs[name] = self._runs(name)
                    if runs[name]:
                        there[name] = portion
        return tuple(found.values())

    def _runs(self, job: str) -> bool:
        attempt = self.jobs[job].attempt
        return attempt is not None and attempt.phase in (Phase.RUNNING, Phase.RESIZING)

    def usage(self, queue: str) -> Usage:
        """What the jobs of a queue and of those inside it hold or have claimed, but for terminating ones."""
        account = self.quotas.accounts.get(queue)
        return Usage(*account.used) if account is not None else self._usage.get(queue, NOTHING)

    def queues(self) -> tuple[str, ...]:
        """The queues that jobs can be or were submitted to, in the order of the file or of their first job."""
        return tuple(self._usage)

    def know_queue(self, queue: str) -> None:
        """Takes note of a queue."""
        self._usage.setdefault(queue, NOTHING)

    def use(self, queue: str, what: Usage, sign: int, since_ms: int | None = None) -> None:
        """Adds to what a queue uses (1), or takes away (-1), from now on; what ended since a moment, from then on."""
        if self.counts_spending:
            self.spending.use(queue, sign * what.gpu_permille, self.now)
            if since_ms is not None and since_ms < self.now:
                self.spending.give_back(queue, what.gpu_permille, since_ms, self.now)
        self.suppose(queue, what, sign)

    def suppose(self, queue: str, what: Usage, sign: int) -> None:
        """As if a queue used so much more or less, at this moment."""
        had = self._usage[queue]
        self._usage[queue] = Usage(
            had.gpu_permille + sign * what.gpu_permille,
            had.cpus_milli + sign * what.cpus_milli,
            had.memory_mb + sign * what.memory_mb,
        )
        if self.quotas.accounts:
            self.quotas.use(queue, what, sign)

    def shortfall(self, record: JobRecord) -> Shortfall | None:
        """What of its queue's quota a job would exceed; None if it may have what it asks for."""
        if not self.quotas.accounts:
            return None
        queue, need = record.job.queue, record.need
        if self.quotas.budgets and need.gpu_permille:
            spent_out = self.quotas.spent_out(queue, lambda path: self.spending.spent(path, self.now))
            if spent_out is not None:
                return Shortfall(queue, spent_out, 0, need.gpu_permille, 0, by_budget=True)
        most = self.policy.allows(record, self)
        if most is not None and need.gpu_permille > most:
            return Shortfall(queue, "", 0, need.gpu_permille, max(most, 0), by_limit=True)
        return self.quotas.shortfall(queue, need)

    @property
    def counts_spending(self) -> bool:
        """Whether anything asks for the GPU time that queues have had."""
        return self.quotas.budgets or self.policy.half_life_ms is not None

    def queue(self, path: str) -> Queue | None:
        """What is allotted to a queue; None where the cluster has no such queue."""
        account = self.quotas.accounts.get(path)
        return account.queue if account is not None else None

    def inside(self, path: str) -> tuple[str, ...]:
        """The queues that lie in one."""
        account = self.quotas.accounts.get(path)
        return tuple(each.path for each in account.inside) if account is not None else ()

    def spent_gpu_ms(self, path: str) -> float:
        """GPU time that a queue and those inside it have had, decayed by the policy's half-life."""
        return self.spending.decayed(path, self.now) / 1000

    def key(self, record: JobRecord) -> Key:
        """The key by which a job claims capacity now."""
        return record.queued if record.queued is not None else self.order(record)

    def order(self, record: JobRecord) -> Key:
        """The key of a job: what the policy says, or the first place for a job that is overdue."""
        if record.overdue:
            return (OVERDUE, record.passed_since_ms + self.wait_ms(record), record.number)
        return self.policy.order(record, self)

    def rank(self, record: JobRecord) -> Key:
        """The key by which running jobs are before or behind a job. A job that goes first for the patience of its queue
        goes before pending jobs, and stops no attempt that it would not have stopped otherwise.
        """
        return self.policy.order(record, self) if record.impatient else self.key(record)

    def patience_ms(self, queue: str) -> int:
        """How long other jobs may pass a job of a queue; 0 if nothing is said of it, or for ever."""
        account = self.quotas.accounts.get(queue)
        own = account.queue.patience_ms if account is not None else None
        return (self.cluster.patience_ms if own is None else own) or 0

    def wait_ms(self, record: JobRecord) -> int:
        """How long a job may be pending before it goes first: as it says, up to its first start, or by the patience of
        its queue.
        """
        own = record.job.max_wait_ms if record.first_start_ms is None else None
        return self.patience_ms(record.job.queue) if own is None else own

    @property
    def reserves(self) -> bool:
        """Whether it matters how long jobs run: for what is reserved by the policy, or for jobs that say how long they
        may be pending, or for maintenance.
        """
        return self.waits_are_limited or self.policy.reserve is not Reserve.NOBODY or bool(self.cluster.maintenance)

    @property
    def any_overdue(self) -> bool:
        """Whether a job is overdue that is pending, or would be again if its claim were withdrawn."""
        if not self.waits_are_limited:
            return False
        claims = (*self.waiting_claims.values(), *self.preparing.values())
        return any(classes.late for classes in self.pending_classes().queues.values()) or any(
            self.jobs[attempt.job.id].overdue for attempt in claims
        )

    def behind(self, key: Key) -> Iterator[AttemptRecord]:
        """Running attempts behind a key in the order, the last first."""
        self.settle_running_order()
        return self.standing.behind(key)

    def gpus_behind(self, key: Key) -> int:
        """GPUs of running attempts behind a key in the order."""
        self.settle_running_order()
        return self.standing.gpus_behind(key)

    def stand(self, attempt: AttemptRecord, key: Key) -> None:
        """Puts an attempt in the place of a key among those that run."""
        falls = self.policy.targets is Targets.REMAINING and attempt.started_ms >= 0
        self.standing.remove(attempt)
        self.standing.add(attempt, key, self.now if falls else None)

    def settle_running_order(self) -> None:
        """Puts running attempts in the places that their keys say now, where these change with time."""
        if self.policy.targets is Targets.REMAINING:
            self.standing.fall_to(self.now)
        elif self.policy.targets is not Targets.RANK and self._settled_seq != self.seq:
            self._settled_seq = self.seq
            self.standing.settle(lambda attempt: self.order(self.jobs[attempt.job.id]))

    @property
    def makes_room(self) -> bool:
        """Whether any attempt is ever stopped, shrunk or moved for a job."""
        return self.policy.preempts or bool(self.quotas) or self.cells is not None

    @property
    def tells_apart(self) -> Minds:
        """By what jobs are told apart, other than for their places in the order."""
        return Minds.QUEUES if self.quotas or self.cells is not None else self.policy.tells_apart

    def pending_classes(self) -> ClassIndex:
        """The pending classes by queue and request. It follows from `classes`, and is kept as these change."""
        index = self.class_index
        if index is None or index.is_sparse:
            index = index_of(self.fit, self.tells_apart, self.classes.values(), self.jobs)
            self.class_index = index
        return index

    def preemption_group(self, job: Job) -> PreemptionGroup:
        """The preemption group of a job: jobs with the same victims: of its priority, and its queue if that matters."""
        return (job.priority, job.queue if self.tells_apart is Minds.QUEUES else "")

    def record(self, job: str) -> JobRecord:
        """The record of a job; an unknown id is an error that names it."""
        try:
            return self.jobs[job]
        except KeyError:
            raise UnknownJobError(f"there is no job {job!r}") from None

    def attempt(self, job: str, number: int) -> AttemptRecord | None:
        """The attempt, if it is the job's present one; late news of older attempts are of no concern."""
        record = self.jobs.get(job)
        attempt = record.attempt if record is not None else None
        return attempt if attempt is not None and attempt.number == number else None

    def comes_back(self, attempt: AttemptRecord) -> bool:
        """Whether what a terminating attempt leaves is for its own job, which goes on there without what it lost."""
        reason = attempt.stop_reason or self.to_stop.get(attempt.key)
        return self.cluster.recovery is not None and reason in GOES_ON and self.has_lost(attempt.placement)

    def has_lost(self, placement: Placement) -> bool:
        """Whether some of the hardware of a placement takes no work any more."""
        number, capacity = self.topology.number, self.capacity
        return any(
            slot.node not in number
            or capacity.health[number[slot.node]] is not Health.HEALTHY
            or any(capacity.unhealthy[number[slot.node]] >> device & 1 for device in slot.devices)
            for slot in placement.slots
        )

    def attempts_present(self) -> Iterator[AttemptRecord]:
        """All present attempts, by group."""
        for attempts in self.runs.values():
            yield from attempts.values()

    def attempts(self) -> Iterator[AttemptRecord]:
        """All present attempts, in the order of their jobs' submission."""
        for record in self.jobs.values():
            if record.attempt is not None:
                yield record.attempt

    def bookings(self, job: Job, placement: Placement) -> list[Booking]:
        """What a placement takes of each node."""
        tasks = self.jobs[job.id].tasks
        number = self.topology.number
        bookings = []
        for slot in placement.slots:
            devices = sum([1 << device for device in slot.devices])
            needs = self.fit.ask(tasks[slot.role], job).needs
            bookings.append(Booking(number[slot.node], devices, needs, slot.portion, f"{job.id}#{slot.rank}"))
        return bookings

    def set_timer(self, at_ms: int, kind: str, job: str, attempt: int = 0, seq: int = 0) -> None:
        """Has something happen at a moment."""
        heappush(self.timers, Timer(at_ms, self.timer_count, kind, job, attempt, seq))
        self.timer_count += 1

    def look_for_first(self, queue: str, since_ms: int = 0) -> None:
        """Has a queue be looked at for a job that goes first, among those that may be passed from a moment on."""
        self.looks_for_first[queue] = min(since_ms, self.looks_for_first.get(queue, since_ms))

    def next_wakeup(self) -> int | None:
        """When something happens with no event from outside."""
        # Asked at every event, so that it is written out: generators cost more than what they would go through.
        soonest = self.timers[0].at_ms if self.timers else None
        if self.policy.has_wakeups:
            at_ms = self.policy.next_wakeup(self.memory, self.now)
            if at_ms is not None and (soonest is None or at_ms < soonest):
                soonest = at_ms
        for reservation in self.reservations:
            at_ms = reservation.at_ms
            # A reservation that waits for an unknown end is looked at when that comes.
            if self.now < at_ms < UNSAID_MS and (soonest is None or at_ms < soonest):
                soonest = at_ms
        return soonest

    def reason(self, job: str) -> Reason | None:
        """Why a job is pending; None if it is not."""
        record = self.record(job)
        if record.final is not None:
            return None
        if record.attempt is not None:
            if record.attempt.phase is not Phase.CLAIMED:
                return None
            return Reason.MAKING_ROOM if record.attempt.waits else Reason.PREPARING
        if record.parked is not None:
            return record.parked
        verdict = self.classes[record.shape].verdict
        lasting = (Reason.NEVER_FITS, Reason.QUOTA, Reason.BUDGET)
        if self.head and self.record(self.head).shape != record.shape and verdict not in lasting:
            return Reason.BEHIND
        return verdict

    def fingerprint(self) -> tuple[object, ...]:
        """Everything true of the State, for comparing two moments or two histories."""
        return (
            self.now,
            self.seq,
            str(self.digest),
            self.head,
            tuple(
                (
                    record.job.id,
                    record.state,
                    record.parked,
                    record.queued,
                    record.attempts,
                    record.not_before_ms,
                    record.attempt and (record.attempt.key, record.attempt.phase, tuple(record.attempt.bookings)),
                    record.attempt and tuple(record.attempt.in_flight),
                    record.attempt and (tuple(record.attempt.removing), tuple(record.attempt.adding)),
                )
                for record in self.jobs.values()
            ),
            tuple((tuple(waiting.jobs), waiting.verdict) for waiting in self.classes.values()),
            tuple(self.to_stop.items()),
            tuple(self.waiting_claims),
            tuple(self.preparing),
            tuple(self.cuts),
            tuple(self.elastic),
            tuple(self.leaving),
            tuple(self.adjustments.items()),
            tuple(sorted(self.timers)),
            repr(self.memory),
            self.quotas.fingerprint(),
            self.capacity.fingerprint(),
            self.cells.fingerprint() if self.cells is not None else None,
        )
