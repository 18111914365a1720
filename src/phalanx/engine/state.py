"""The State: the fold of all records. `apply` changes it, `decide` reads it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappush
from typing import Any, NamedTuple

from phalanx.cluster.capacity import Booking, Capacity
from phalanx.cluster.cluster import Cluster
from phalanx.cluster.topology import Topology
from phalanx.engine.action import ActionId, Repartition
from phalanx.engine.ends import Ends
from phalanx.engine.journal import Digest
from phalanx.engine.plan import Reason, Reservation
from phalanx.engine.records import AttemptRecord, Group, JobRecord, Phase, StopReason, WaitingClass
from phalanx.engine.standing import Standing
from phalanx.engine.stoppable import Stoppable
from phalanx.placement.fit import Fit
from phalanx.placement.pack import Packing
from phalanx.placement.placement import Placement
from phalanx.policy.policy import Key, Memory, Policy, Targets
from phalanx.policy.registry import policy as policy_named
from phalanx.policy.view import Usage
from phalanx.workload.job import Job

NOTHING = Usage()


class Timer(NamedTuple):
    """Something that happens by itself at a moment: `kind` says what, for which attempt and action."""

    at_ms: int
    number: int
    kind: str
    job: str
    attempt: int = 0
    seq: int = 0


class State:
    """Everything phalanx knows. Built by applying the records of a journal, the first of which defines the cluster."""

    def __init__(self) -> None:
        self.now = 0
        self.seq = -1
        self.term = 0
        self.digest = Digest()
        self.jobs: dict[str, JobRecord] = {}
        self.classes: dict[Hashable, WaitingClass] = {}
        self.runs: dict[Group, dict[str, AttemptRecord]] = {}
        self.leaving: dict[str, AttemptRecord] = {}
        self.waiting_claims: dict[str, AttemptRecord] = {}
        self.elastic: dict[str, AttemptRecord] = {}
        self.preparing: dict[str, AttemptRecord] = {}
        self.cuts: dict[ActionId, Repartition] = {}
        self.to_stop: dict[str, StopReason] = {}
        self.on_node: dict[int, dict[str, AttemptRecord]] = {}
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
        self.standing = Standing()
        self.ends = Ends()
        self.reservations: tuple[Reservation, ...] = ()
        self.surprised = False
        self._settled_seq = -1
        self._usage: dict[str, Usage] = {}
        self.memory: Memory = {}
        self.policy: Policy = policy_named("fifo")
        self.define(Cluster(()))

    def __getstate__(self) -> dict[str, Any]:
        """What a saved State holds: the policy by its name."""
        return {**self.__dict__, "policy": self.policy.spec}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        self.policy = policy_named(saved["policy"])

    def define(self, cluster: Cluster) -> None:
        """Takes on a cluster."""
        self.cluster = cluster
        self.topology = Topology(cluster)
        self.capacity = Capacity(self.topology)
        self.fit = Fit(self.capacity)
        self.packing = Packing()
        self.stoppable = Stoppable(len(cluster.nodes))
        self._total = Usage(
            1000 * cluster.gpus,
            sum(node.cpus_milli for node in cluster.nodes),
            sum(node.memory_mb for node in cluster.nodes),
        )

    @property
    def total(self) -> Usage:
        """What the cluster has."""
        return self._total

    def usage(self, queue: str) -> Usage:
        """What the jobs of a queue hold or have been promised, but for those who are leaving."""
        return self._usage.get(queue, NOTHING)

    def queues(self) -> tuple[str, ...]:
        """The queues that jobs were submitted to so far, in the order of their first job."""
        return tuple(self._usage)

    def know_queue(self, queue: str) -> None:
        """Takes note of a queue."""
        self._usage.setdefault(queue, NOTHING)

    def use(self, queue: str, what: Usage, sign: int) -> None:
        """Adds to what a queue uses (1), or takes away (-1)."""
        had = self._usage[queue]
        self._usage[queue] = Usage(
            had.gpu_permille + sign * what.gpu_permille,
            had.cpus_milli + sign * what.cpus_milli,
            had.memory_mb + sign * what.memory_mb,
        )

    def key(self, record: JobRecord) -> Key:
        """The key by which a job claims capacity now."""
        return record.queued if record.queued is not None else self.policy.order(record, self)

    def behind(self, key: Key) -> Iterator[AttemptRecord]:
        """Who runs and stands behind a key in the order, the last first."""
        self._settle_standing()
        return self.standing.behind(key)

    def gpus_behind(self, key: Key) -> int:
        """GPUs of those who run and stand behind a key in the order."""
        self._settle_standing()
        return self.standing.gpus_behind(key)

    def _settle_standing(self) -> None:
        if self.policy.targets is not Targets.RANK and self._settled_seq != self.seq:
            self._settled_seq = self.seq
            self.standing.settle(lambda attempt: self.policy.order(self.jobs[attempt.job.id], self))

    def yields(self, head: JobRecord, attempt: AttemptRecord) -> bool:
        """Whether the policy lets an attempt be stopped or shrunk for a head."""
        if self.policy.targets is Targets.KEEP:
            return self.policy.victims(head, attempt, self)
        return self.policy.order(self.jobs[attempt.job.id], self) > self.key(head)

    def record(self, job: str) -> JobRecord:
        """The record of a job; an unknown id is an error that names it."""
        try:
            return self.jobs[job]
        except KeyError:
            raise UnknownJobError(f"there is no job {job!r}") from None

    def attempt(self, job: str, number: int) -> AttemptRecord | None:
        """The attempt, if it is the job's present one; late news of older attempts concern nobody."""
        record = self.jobs.get(job)
        if record is None or record.attempt is None or record.attempt.number != number:
            return None
        return record.attempt

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
            devices = 0
            for device in slot.devices:
                devices |= 1 << device
            needs = self.fit.ask(tasks[slot.role], job).needs
            bookings.append(Booking(number[slot.node], devices, needs, slot.portion, f"{job.id}#{slot.rank}"))
        return bookings

    def set_timer(self, at_ms: int, kind: str, job: str, attempt: int = 0, seq: int = 0) -> None:
        """Has something happen at a moment."""
        heappush(self.timers, Timer(at_ms, self.timer_count, kind, job, attempt, seq))
        self.timer_count += 1

    def next_wakeup(self) -> int | None:
        """When something happens with no event from outside."""
        own = self.timers[0].at_ms if self.timers else None
        policy = self.policy.next_wakeup(self.memory, self.now)
        reserved = min((each.at_ms for each in self.reservations if each.at_ms > self.now), default=None)
        return min((at for at in (own, policy, reserved) if at is not None), default=None)

    def reason(self, job: str) -> Reason | None:
        """Why a job waits; None if it does not."""
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
        if self.head and self.record(self.head).shape != record.shape and verdict is not Reason.NEVER_FITS:
            return Reason.BEHIND
        return verdict

    @property
    def stale(self) -> bool:
        """Whether something has grown or appeared since all kinds of waiting jobs were last looked at."""
        return bool(self.classes) and (bool(self.capacity.grown) or self.newest_class > self.clean_seq)

    @property
    def unsettled(self) -> bool:
        """Whether a decision could change anything: not where all was looked at and nothing has grown since."""
        return bool(
            self.stale
            or self.to_stop
            or self.waiting_claims
            or self.preparing
            or self.elastic
            or (self.surprised and self.reservations)
            or any(reservation.at_ms <= self.now for reservation in self.reservations)
            or self.policy.targets is Targets.DRIFT
            or self.policy.victims_vary
        )

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
            tuple(sorted(self.timers)),
            repr(self.memory),
            self.capacity.fingerprint(),
        )


class UnknownJobError(ValueError):
    """An event names a job that was never submitted."""
