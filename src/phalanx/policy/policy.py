"""Policies: which job goes next, which may pass a pending head, and which is preempted. Composed of plain functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from phalanx.policy.about import NOTHING_SAID, About
from phalanx.policy.factor import Factor, Measure
from phalanx.policy.view import Adjustment, JobView, Moment, Place, RunView, Usage
from phalanx.protocol.event import Event
from phalanx.protocol.plan import Plan
from phalanx.workload.gang import Gang

Memory = dict[str, Any]
Key = tuple[int, ...]
Order = Callable[[JobView, Moment], Key]
QueueOrder = Callable[[str, Usage, Moment], Key]
Backfill = Callable[[JobView, JobView], bool]
Victims = Callable[[JobView, RunView, Moment], bool]
Keeps = Callable[[str, Moment], int]
MayReclaim = Callable[[JobView, Moment], bool]
Allows = Callable[[JobView, Moment], int | None]
Shape = Callable[[JobView, Moment], Gang]
Sizes = Callable[[Sequence[JobView], Moment], Mapping[str, Mapping[str, int]]]
Places = Callable[[JobView, Moment], Sequence[Place]]
Relocates = Callable[[Moment], Sequence[tuple[str, str]]]
Adjusts = Callable[[Memory, JobView, Moment], Mapping[str, Adjustment]]
Changes = Callable[[JobView, Moment], int | None]
Factors = Callable[[JobView, Moment], tuple[Factor, ...]]
Measures = Callable[[str, Usage, Moment], tuple[Measure, ...]]
Due = Callable[[JobView, Moment], None]
Observe = Callable[[Memory, Event, int], None]
ObservePlan = Callable[[Memory, Plan, int], None]
Wakeup = Callable[[Mapping[str, Any], int], int | None]


class Targets(StrEnum):
    """What should run.

    `KEEP` is what runs, then the pending jobs in their order. Under the rest running jobs are in the order with the
    pending ones, and one that does not fit behind those before it is stopped. `RANK` is for keys that change only when
    `changes` says so. With `RISE` the key of a running job may fall by itself as time passes, so that it is stopped
    less and less; with `REMAINING` it begins with a time that falls by 1 in a millisecond while it runs, down to 0, and
    nothing else of it changes. With `DRIFT` it may go anywhere, and every decision looks at every job.
    """

    KEEP = "keep"
    RANK = "rank"
    RISE = "rise"
    REMAINING = "remaining"
    DRIFT = "drift"


class Reserve(StrEnum):
    """For which jobs devices and a time are reserved: none, the head, or every pending job."""

    NOBODY = "nobody"
    HEAD = "head"
    EVERYBODY = "everybody"


class Minds(StrEnum):
    """What matters of a job other than for its place in the order: nothing, its priority, or its queue, too."""

    NOTHING = "nothing"
    PRIORITIES = "priorities"
    QUEUES = "queues"


def by_submission(job: JobView, at: Moment) -> Key:
    """First come, first served."""
    return (job.submitted_ms, job.number)


def no_queues(queue: str, usage: Usage, at: Moment) -> Key:
    """Queues do not matter."""
    return ()


def never(head: JobView, job: JobView) -> bool:
    """No job passes a pending head."""
    return False


def always(head: JobView, job: JobView) -> bool:
    """A job that fits may pass."""
    return True


def nobody(head: JobView, victim: RunView, at: Moment) -> bool:
    """No attempt is stopped for a job."""
    return False


def anybody(head: JobView, other: RunView, at: Moment) -> bool:
    """An attempt that lets itself be moved, and saves its work, is moved before any is stopped."""
    return True


def always_may(head: JobView, at: Moment) -> bool:
    """Each attempt of another queue is asked about."""
    return True


def nothing_kept(queue: str, at: Moment) -> int:
    """No queue is spared."""
    return 0


def no_bound(job: JobView, at: Moment) -> int | None:
    """Nothing but quotas bounds what a job may have."""
    return None


def as_asked(job: JobView, at: Moment) -> Gang:
    """Every gang is placed as it was submitted."""
    return job.job.gang


def as_large_as_fits(jobs: Sequence[JobView], at: Moment) -> Mapping[str, Mapping[str, int]]:
    """Every elastic gang takes what it can use, while no pending job needs it."""
    return {}


def no_factors(job: JobView, at: Moment) -> tuple[Factor, ...]:
    """For orders that do not add up."""
    return ()


def no_measures(queue: str, usage: Usage, at: Moment) -> tuple[Measure, ...]:
    """For orders in which queues do not matter."""
    return ()


def anywhere(job: JobView, at: Moment) -> Sequence[Place]:
    """A gang goes where the placement of the cluster has it go."""
    return ()


def all_stay(at: Moment) -> Sequence[tuple[str, str]]:
    """No job moves for its own sake."""
    return ()


def as_they_are(memory: Memory, job: JobView, at: Moment) -> Mapping[str, Adjustment]:
    """No job's shares change while it runs."""
    return {}


def no_change(job: JobView, at: Moment) -> int | None:
    """For orders in which a job's place changes only with events."""
    return None


def nothing_due(job: JobView, at: Moment) -> None:
    """For policies that remember nothing of single jobs."""


def remember_nothing(memory: Memory, event: Event, now: int) -> None:
    """For policies whose order depends on nothing that happens."""


def remember_no_plan(memory: Memory, plan: Plan, now: int) -> None:
    """For policies to which it does not matter where jobs lie."""


def no_wakeup(memory: Mapping[str, Any], now: int) -> int | None:
    """For policies whose order changes only with events."""
    return None


@dataclass(frozen=True)
class Policy:
    """A policy names only what it changes.

    `order` gives the key by which jobs claim capacity, least first; `queue_order`, where it is given, goes before it
    and is asked anew as a queue gets devices; `level_order` is its like for a tree of queues, asked for every level.
    `targets` says whether running jobs are in that order, too.
    `backfill(head, job)` says whether a job may pass a head that does not fit; `reserve` for which jobs devices are
    reserved at a time, so that no job that passes delays them. `victims(head, run)` says whether a running attempt may
    be stopped for a head; which of those are, the engine works out: the set that loses the least work. It is asked once
    for all attempts of a queue and priority, and for all heads of one; where `minds` says that only priorities matter
    to it, once for those of a priority, which is faster with many queues. `moves(head, run)` says likewise whether one
    may be moved elsewhere for a head, if it lands there at once; that is tried before any is stopped. `reclaims(head,
    run)` says whether one of another queue may be stopped for a head where the cluster describes queues, beside what is
    reclaimed by quota; where `may_reclaim(head)` is false it is so of none, and none is asked about. `keeps` is what a
    queue keeps whatever other queues need, in thousandths of GPUs: victims are taken of it only down to that, or while
    it has more where the cluster describes queues. `allows(job)` is what a job
    may have at most now, in thousandths of GPUs, where the cluster describes queues. `shape` is the gang to place: it
    may ask for another GPU type, or let the tasks of a gang that allows it be divided. `sizes` is asked at a wake-up,
    with all jobs that are pending or have devices: how many members each role of an elastic gang is to have, by job and
    name of the role; what it does not name has its minimum. A job with more gives them up, one with fewer gets them as
    devices come free. Whether it runs at all remains a matter of `order`. `reports_ms` is how often running jobs should
    say how far they are; `paces_ms` how long after they began to run somewhere they should say once how fast they are
    there, where a cluster has unlike GPUs.

    `places` are sets of nodes in which a gang is tried in turn, and in no other. `relocates` is asked when no job is
    pending and none is being resized: which running jobs should go to which node, so that they or the cluster are
    better off; those move that land there at once. `adjusts` is asked when a job with shares of devices has reported,
    or another has begun or ceased to run on one of them, or runs there in another way: it may take note of that in the
    memory, and says which jobs' shares are to be changed where they are.

    `changes` says when a job's key or shape changes by itself; when that moment has come `due` may write the job's
    marks, and the job is put in its new place. `observe` folds events into the policy's memory, `observe_plan` plans,
    which say where jobs lie, and `next_wakeup` says when the keys of all jobs change without any event. `adviser` names
    the solver that is asked at such a moment; its answer comes as an `Advice` event. With `half_life_ms` the engine
    keeps what queues have spent of GPU time, of which so much later half counts (0: all of it). With
    `estimate_permille` jobs that do not say how long they take are expected to run as long as so many thousandths of
    their like at most did. `factors` are what `order` adds up, and `measures` what `queue_order` or `level_order`
    compares of a queue, for users that ask. `labels` are those of jobs that it goes by, with the values that each may
    have: a job with another is refused.

    What follows from these parts is asked at every event, so that it is worked out once.
    """

    name: str
    order: Order = by_submission
    queue_order: QueueOrder = no_queues
    level_order: QueueOrder = no_queues
    targets: Targets = Targets.KEEP
    backfill: Backfill = always
    reserve: Reserve = Reserve.NOBODY
    victims: Victims = nobody
    moves: Victims = nobody
    reclaims: Victims = nobody
    may_reclaim: MayReclaim = always_may
    minds: Minds = Minds.QUEUES
    keeps: Keeps = nothing_kept
    allows: Allows = no_bound
    shape: Shape = as_asked
    sizes: Sizes = as_large_as_fits
    places: Places = anywhere
    relocates: Relocates = all_stay
    adjusts: Adjusts = as_they_are
    changes: Changes = no_change
    due: Due = nothing_due
    observe: Observe = remember_nothing
    observe_plan: ObservePlan = remember_no_plan
    next_wakeup: Wakeup = no_wakeup
    half_life_ms: int | None = None
    estimate_permille: int | None = None
    reports_ms: int | None = None
    paces_ms: int | None = None
    factors: Factors = no_factors
    measures: Measures = no_measures
    adviser: str = ""
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    about: About = NOTHING_SAID

    @cached_property
    def spec(self) -> str:
        """The policy as it is written on a command line: name:key=value,…"""
        given = ",".join(f"{key}={value}" for key, value in self.parameters.items())
        return f"{self.name}:{given}" if given else self.name

    @cached_property
    def lets_all_pass(self) -> bool:
        """Whether any job that fits may pass a pending head."""
        return self.backfill is always

    @cached_property
    def lets_none_pass(self) -> bool:
        """Whether no job passes a pending head."""
        return self.backfill is never

    @cached_property
    def has_victims(self) -> bool:
        """Whether attempts are stopped for a job of whatever queue."""
        return self.victims is not nobody

    @cached_property
    def has_moves(self) -> bool:
        """Whether attempts are moved for a job."""
        return self.moves is not nobody

    @cached_property
    def has_reclaims(self) -> bool:
        """Whether attempts are stopped for a job of another queue by a rule of the policy's own."""
        return self.reclaims is not nobody

    @cached_property
    def bounds_jobs(self) -> bool:
        """Whether it bounds what a job may have, beside its quota."""
        return self.allows is not no_bound

    @cached_property
    def chooses_places(self) -> bool:
        """Whether it says where gangs go."""
        return self.places is not anywhere

    @cached_property
    def has_relocations(self) -> bool:
        """Whether jobs move for their own sake."""
        return self.relocates is not all_stay

    @cached_property
    def shapes_gangs(self) -> bool:
        """Whether gangs may be placed otherwise than as they were submitted."""
        return self.shape is not as_asked

    @cached_property
    def has_adjustments(self) -> bool:
        """Whether it changes running jobs."""
        return self.adjusts is not as_they_are

    @cached_property
    def has_changes(self) -> bool:
        """Whether keys change as time passes."""
        return self.changes is not no_change

    @cached_property
    def has_wakeups(self) -> bool:
        """Whether all keys change at moments of its own."""
        return self.next_wakeup is not no_wakeup

    @cached_property
    def observes_events(self) -> bool:
        """Whether events change its memory."""
        return self.observe is not remember_nothing

    @cached_property
    def observes_plans(self) -> bool:
        """Whether plans change its memory."""
        return self.observe_plan is not remember_no_plan

    @cached_property
    def has_measures(self) -> bool:
        """Whether it says what it compares of queues."""
        return self.measures is not no_measures

    @cached_property
    def sets_sizes(self) -> bool:
        """Whether it says how many members elastic gangs are to have."""
        return self.sizes is not as_large_as_fits

    @cached_property
    def orders_queues(self) -> bool:
        """Whether queues have keys of their own."""
        return self.orders_all_queues or self.orders_levels

    @cached_property
    def orders_all_queues(self) -> bool:
        """Whether each queue is compared with all others."""
        return self.queue_order is not no_queues

    @cached_property
    def orders_levels(self) -> bool:
        """Whether queues are compared with the others beside them, level by level."""
        return self.level_order is not no_queues

    @cached_property
    def tells_apart(self) -> Minds:
        """By what it tells jobs apart, other than for their places in the order."""
        if self.orders_queues:
            return Minds.QUEUES
        return self.minds if self._makes_way else Minds.NOTHING

    @cached_property
    def preempts(self) -> bool:
        """Whether any attempt is ever stopped or moved for a job."""
        return self.targets is not Targets.KEEP or self._makes_way

    @cached_property
    def overtakes(self) -> bool:
        """Whether a job that is submitted later may delay one that waits: nothing bounds how long it waits then."""
        in_order = self.order is by_submission and not self.orders_queues and self.lets_none_pass
        return self.preempts or not in_order

    @cached_property
    def _makes_way(self) -> bool:
        return self.has_victims or self.has_moves or self.has_reclaims

    @cached_property
    def victims_vary(self) -> bool:
        """Whether the victims of a job depend on what queues have: then a refusal lasts only until that changes."""
        stops = self.has_victims or self.has_reclaims
        return stops and self.keeps is not nothing_kept
