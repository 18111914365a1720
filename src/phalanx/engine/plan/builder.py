"""The plan builder: claims and actions so far, on the transaction that shows what they would do."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from phalanx.cluster.bits import members
from phalanx.cluster.capacity import Booking
from phalanx.cluster.device import layout_wanted, repartition
from phalanx.cluster.mig import Layout
from phalanx.engine.plan.begin import begin
from phalanx.engine.plan.tentative import TentativeBorrow, TentativeBorrows
from phalanx.engine.preempt.extras import are_lent
from phalanx.engine.preempt.last_to_go import LastToGo
from phalanx.engine.preempt.moves import Move
from phalanx.engine.preempt.need import need_of_others
from phalanx.engine.preempt.preemption import PreemptionPlan
from phalanx.engine.preempt.upper_bound import UpperBound, UpperBounds
from phalanx.engine.preempt.way import Context
from phalanx.engine.recovery.former import in_former_order
from phalanx.engine.reserve.profile import End, Underway
from phalanx.engine.reserve.quota_reservations import QuotaReservations
from phalanx.engine.reserve.reservations import Reservations
from phalanx.engine.state.records import AttemptRecord, JobRecord, Phase, PreemptionGroup, StopReason, usage_of
from phalanx.engine.transaction import cells as cells_seats
from phalanx.engine.transaction.suspension import moved_memory, own_memory
from phalanx.engine.transaction.transaction import Transaction
from phalanx.placement.gang import GangTrial
from phalanx.placement.place import placement_of
from phalanx.placement.placement import Placement, Slot
from phalanx.placement.ranks import with_mesh
from phalanx.policy.policy import Targets
from phalanx.protocol.action import Action, ActionId, Repartition, Resize, Stop, Suspend
from phalanx.protocol.plan import Claim, Plan, Verdict

RECLAIMS_MAX = 32
"""Searches of one decision, by jobs that may reclaim what is borrowed, that may come to nothing: a bound on work.
Those of the first in the order are made."""


@dataclass(frozen=True, slots=True)
class Untouchable:
    """Keys of attempts that are in any of these, as they are at the moment of asking."""

    leaving: Container[str]
    touched: Container[str]
    withdrawn: Container[str]

    def __contains__(self, key: object) -> bool:
        return key in self.leaving or key in self.touched or key in self.withdrawn


class PlanBuilder:
    """Claims and actions so far."""

    def __init__(self, transaction: Transaction, now: int) -> None:
        self.transaction = transaction
        self.state = transaction.state
        self.now = now
        self.claims: list[Claim] = []
        self.actions: list[Action] = []
        self.leaving: dict[str, AttemptRecord] = dict(self.state.leaving)
        self.leaving_gpus = sum(attempt.gpus for attempt in self.leaving.values())
        self.promised_gpus = sum(self.held_gpus(claim.bookings) for claim in self.state.waiting_claims.values())
        self.promoted: dict[str, AttemptRecord] = {}
        self.withdrawn: dict[str, AttemptRecord] = {}
        # Not the plan itself: two that hold one another stay until the collector comes, which is seldom in long runs.
        self.reservations = Reservations(transaction, now, Underway(self.leaving, self.promoted, self.withdrawn))
        self.quota_reservations = QuotaReservations(transaction)
        self.extras_are_lent = are_lent(self.state)
        self.fresh = self.state.capacity.grown | self.reservations.nodes
        self.grown: list[int] = []
        self.opened = False
        self.newest_bookings: list[Booking] = []
        self.newest_release = transaction.release
        self.borrows = TentativeBorrows(self.state.quotas)
        self.put_back: list[JobRecord] = []
        self.reclaims_left = RECLAIMS_MAX
        self.stopped: dict[str, AttemptRecord] = {}
        self.discarded: dict[str, None] = {}
        self._upper_bounds = UpperBounds(self.state)
        self._giving_way: dict[PreemptionGroup, list[PreemptionGroup]] = {}
        self.touched: dict[str, None] = {}
        self._last_to_go = LastToGo(transaction, self.untouchable)
        self._shrinking: dict[str, tuple[Slot, ...]] = {}
        self.cell_heads: dict[tuple[str, bool], tuple[JobRecord, int | None]] = {}
        self.cell_ends: list[tuple[int, str]] = []

    def stop(self, attempt: AttemptRecord, reason: StopReason) -> None:
        self.touched[attempt.key] = None
        action = ActionId(self.state.term, attempt.job.id, attempt.number, attempt.next_seq)
        grace_ms = attempt.job.grace_ms if not attempt.stop_failures else 0
        self.actions.append(Stop(action, grace_ms, reason.value))
        self._have_leave(attempt)

    def suspend(self, attempt: AttemptRecord, memory_mb: int) -> None:
        """Has an attempt leave its devices and keep its processes, with so much memory of its node booked for it."""
        held = self.transaction.hold((moved_memory(attempt, memory_mb),))
        assert held, f"{attempt.key} was to find memory on its node"
        self.touched[attempt.key] = None
        action = ActionId(self.state.term, attempt.job.id, attempt.number, attempt.next_seq)
        self.actions.append(Suspend(action, memory_mb))
        self._have_leave(attempt)
        self.transaction.claim((own_memory(attempt),))

    def _have_leave(self, attempt: AttemptRecord) -> None:
        if attempt.key not in self.leaving:
            self.leaving[attempt.key] = attempt
            self.leaving_gpus += attempt.gpus
            self.transaction.use(attempt.job.queue, usage_of(attempt.staying), -1)
            self.transaction.cede(attempt.staying)
        self.grow(attempt.bookings)

    def grow(self, bookings: Iterable[Booking]) -> None:
        """Takes note of where other jobs may find more than before. `grown` also tells a second time on one node."""
        nodes = 0
        for booking in bookings:
            nodes |= self.state.topology.bit[booking.node]
        self.fresh |= nodes
        self.grown.append(nodes)
        self.reservations.grew()
        self.quota_reservations.begin_anew()

    @property
    def growths(self) -> int:
        """How often other jobs might find more than before."""
        return len(self.grown)

    def open_shared(self, bookings: Iterable[Booking]) -> None:
        """A device of which a part is claimed takes no other job. Once the part is allocated, the rest is to be had.

        So are CPUs and the like of the node. Where no job is past its max_wait, the next decision is soon enough.
        """
        for booking in bookings:
            if booking.portion is not None or (booking.needs and self.state.waits_are_limited):
                self.opened = True
                self.grow((booking,))

    def begin(self, job: str, attempt: int, seq: int, placement: Placement, bookings: Sequence[Booking]) -> None:
        """The start, or first the re-partitions that it needs."""
        cuts: dict[tuple[int, int], Layout | None] = {}
        capacity = self.state.capacity
        for node, devices, _, portion, _ in bookings:
            for device in members(devices & capacity.partitioned[node] if portion is None else devices):
                load = capacity.load(node, device)
                if portion is None:
                    cuts[node, device] = None
                elif repartition(load).needed:
                    cuts[node, device] = layout_wanted(load)
        term = self.state.term
        for i, ((node, device), layout) in enumerate(cuts.items()):
            name = self.state.topology.nodes[node].name
            self.actions.append(Repartition(ActionId(term, job, attempt, seq + i), name, device, layout))
        if not cuts:
            self.actions.append(begin(self.state.jobs[job], ActionId(term, job, attempt, seq), placement))

    def start(self, record: JobRecord, seated: GangTrial) -> None:
        """A claim on free devices, and the start that goes with it."""
        placement = _in_order(record, placement_of(seated))
        self.start_at(record, placement, [seat.booking for seat in seated.seats])

    def start_at(self, record: JobRecord, placement: Placement, bookings: list[Booking]) -> None:
        """Likewise, where that is known and taken."""
        number = record.next_attempt
        self.newest_bookings = bookings
        self.newest_release = self.transaction.release
        self.transaction.use(record.job.queue, usage_of(bookings), 1)
        self.claims.append(Claim(record.job.id, number, placement))
        self.begin(record.job.id, number, record.next_seq, placement, bookings)
        if self.state.quotas:
            self.borrows.add(TentativeBorrow(record, bookings))

    def take_back(self, borrow: TentativeBorrow) -> list[End]:
        """As if a plan did not lend something; what was planned before of which attempt leaves when."""
        if borrow.waits:
            self.promised_gpus -= self.held_gpus(borrow.bookings)
        give_back = self.transaction.unclaim if borrow.waits else self.transaction.release
        give_back(borrow.bookings)
        self.transaction.use(borrow.record.job.queue, usage_of(borrow.bookings), -1)
        return self.reservations.put_back(borrow.bookings)

    def seat(self, record: JobRecord) -> GangTrial | None:
        """Places a job on what is free, so that it delays no job with a reservation."""
        # Where nothing is reserved, no job can be delayed.
        return self.reservations.seat(record) if self.reservations.made else self.transaction.seat(record)

    def make_way(self, borrow: TentativeBorrow, taker: JobRecord) -> None:
        """A job that was to have devices stays pending, for another."""
        record, bookings = borrow.record, borrow.bookings
        job, number = record.job.id, record.next_attempt
        self.borrows.make_way(borrow, taker)
        self.claims = [claim for claim in self.claims if claim.job != job]
        self.actions = [action for action in self.actions if (action.id.job, action.id.attempt) != (job, number)]
        self.reservations.put_back(bookings)
        self.put_back.append(record)
        self.quota_reservations.waits_on(record)
        self.grow(bookings)

    def promise(self, record: JobRecord, room: PreemptionPlan, stopped: tuple[AttemptRecord, ...] = ()) -> None:
        """A claim on devices that victims still hold, and the stops that free them; a start, if only claims yielded."""
        self._make_way(room)
        self.reservations.grew()
        victims = tuple(victim.key for victim in (*stopped, *room.victims))
        number, placement = record.next_attempt, _in_order(record, room.placement)
        self.newest_bookings = list(room.bookings)
        waits = not self.transaction.hold(room.bookings)
        self.newest_release = self.transaction.unclaim if waits else self.transaction.release
        self.transaction.use(record.job.queue, usage_of(room.bookings), 1)
        self.claims.append(Claim(record.job.id, number, placement, waits, victims))
        if waits:
            self.promised_gpus += self.held_gpus(room.bookings)
            self.transaction.claim(room.bookings)
        else:
            self.begin(record.job.id, number, record.next_seq, placement, room.bookings)
        # Where no job is past its max_wait, one within its nominal quota goes first, or reclaims in the next decision.
        if self.state.quotas and self.state.waits_are_limited and not room.shrunk and not room.moves:
            self.borrows.add(TentativeBorrow(record, self.newest_bookings, waits, (*stopped, *room.victims)))

    def _make_way(self, room: PreemptionPlan) -> None:
        for victim in room.victims:
            if victim.phase is Phase.CLAIMED:
                self._withdraw(victim)
            elif victim.key in room.kept_mb:
                self.suspend(victim, room.kept_mb[victim.key])
            else:
                self.stop(victim, StopReason.PREEMPTED)
                self.stopped[victim.key] = victim
        for attempt, slots in room.shrunk:
            self._shrink_further(attempt, slots)
        for move in room.moves:
            self._move(move)

    def context(self, record: JobRecord, fresh: int | None) -> Context:
        """What is known when a job preempts."""
        return Context(
            self.leaving,
            self.untouchable,
            fresh,
            self.now,
            self.upper_bound(record),
            self._giving_way,
            self._shrinking,
            self._last_to_go.is_behind,
        )

    def upper_bound(self, record: JobRecord) -> UpperBound:
        """That of a job with the plan as it is. How long that is tells how far it is, where nothing is taken back."""
        if self.state.policy.targets is not Targets.KEEP:
            return UpperBound(self.state, record, self.leaving)
        return self._upper_bounds.of(record, self.leaving, (len(self.claims), len(self.actions), self.growths))

    def could_make_room(self, record: JobRecord) -> bool:
        """Whether any attempt might be preempted for a job: under a running order, by the GPUs of those behind it."""
        state = self.state
        if not state.makes_room:
            return False
        if state.quotas and state.quotas.may_reclaim(record.job.queue, record.need):
            return self.reclaims_left > 0
        if state.policy.targets is Targets.KEEP:
            if state.policy.preempts:
                return True
            # Where the policy preempts no attempt, those that are terminating anyway leave capacity.
            return bool(self.leaving) and self.free_soon >= record.gpus_min and state.shortfall(record) is None
        if self.free_soon + state.gpus_behind(state.rank(record)) >= record.gpus_min:
            return True
        return bool(state.quotas) and state.quotas.may_reclaim(record.job.queue, need_of_others(state, record))

    @property
    def free_soon(self) -> int:
        """GPUs that are free, or will be once terminating attempts have left, and that no claim lies on.

        Never fewer than are free: what is claimed may also come of members that shrink away, or of moves.
        """
        return self.state.capacity.free_total + max(self.leaving_gpus - self.promised_gpus, 0)

    def held_gpus(self, bookings: Iterable[Booking]) -> int:
        """How many of the GPUs of bookings are still held by an attempt."""
        held = self.state.capacity.held
        return sum((booking.devices & held[booking.node]).bit_count() for booking in bookings)

    def next_seq(self, claim: Claim) -> int:
        return self.state.jobs[claim.job].next_seq

    def queue_of(self, claim: Claim) -> str:
        return self.state.jobs[claim.job].job.queue

    def bookings_of(self, claim: Claim) -> list[Booking]:
        return self.state.bookings(self.state.jobs[claim.job].asked, claim.placement)

    def _withdraw(self, attempt: AttemptRecord) -> None:
        """Takes a claim back; what it lay on may be had by other jobs, too."""
        self.withdrawn[attempt.key] = attempt
        self.quota_reservations.waits_on(self.state.jobs[attempt.job.id])
        if attempt.waits:
            self.promised_gpus -= self.held_gpus(attempt.bookings)
        give_back = self.transaction.unclaim if attempt.waits else self.transaction.release
        give_back(attempt.bookings)
        self.transaction.use(attempt.job.queue, usage_of(attempt.bookings), -1)
        self.grow(attempt.bookings)

    @property
    def untouchable(self) -> Container[str]:
        """Attempts that this plan already starts, stops, resizes or takes a claim from."""
        return Untouchable(self.leaving, self.touched, self.withdrawn)

    def _shrink_further(self, attempt: AttemptRecord, going: tuple[Slot, ...]) -> None:
        """Has an attempt shrink once for all claims on what it gives up."""
        before = self._shrinking.get(attempt.key, ())
        self._shrinking[attempt.key] = (*before, *going)
        self.actions = [action for action in self.actions if not before or not _resizes(action, attempt)]
        self.shrink(attempt, going, before)

    def shrink(self, attempt: AttemptRecord, going: tuple[Slot, ...], before: tuple[Slot, ...] = ()) -> None:
        slots = attempt.placement.slots
        gone = [booking for slot, booking in zip(slots, attempt.bookings, strict=True) if slot in going]
        if self.state.cells is not None:
            cells_seats.shrink(self.transaction, attempt, gone)
        self.transaction.use(attempt.job.queue, usage_of(gone), -1)
        self.transaction.cede(gone)
        self.resize(attempt, tuple(slot for slot in slots if slot not in going and slot not in before))
        self.grow(gone)

    def _move(self, move: Move) -> None:
        """Has an attempt go elsewhere: it holds the new devices at once, and the old ones until it has gone."""
        attempt = move.attempt
        self.touched[attempt.key] = None
        action = ActionId(self.state.term, attempt.job.id, attempt.number, attempt.next_seq)
        self.actions.append(Resize(action, move.placement))
        self.transaction.cede(attempt.bookings)
        held = self.transaction.hold(move.bookings)
        assert held, f"{attempt.key} was to land on what is free"

    def gather(self, move: Move) -> None:
        """Has an attempt go to where the transaction has it hold devices already."""
        attempt = move.attempt
        self.touched[attempt.key] = None
        action = ActionId(self.state.term, attempt.job.id, attempt.number, attempt.next_seq)
        self.actions.append(Resize(action, move.placement))
        self.transaction.cede([booking for booking in attempt.bookings if booking not in move.bookings])

    def preempt_for_replicas(self, attempt: AttemptRecord, room: PreemptionPlan) -> None:
        """Preempts jobs for more replicas of a service. No other job gets a claim on what they leave in this plan; the
        service grows in the decision that finds it free.
        """
        self._make_way(room)
        waits = not self.transaction.hold(room.bookings)
        if waits:
            self.promised_gpus += self.held_gpus(room.bookings)
            self.transaction.claim(room.bookings)
        self.transaction.use(attempt.job.queue, usage_of(room.bookings), 1)

    def resize(self, attempt: AttemptRecord, slots: tuple[Slot, ...]) -> None:
        self.touched[attempt.key] = None
        action = ActionId(self.state.term, attempt.job.id, attempt.number, attempt.next_seq)
        placement = with_mesh(self.state.topology, attempt.job, Placement(slots))
        self.actions.append(Resize(action, placement))

    def plan(self, verdicts: tuple[Verdict, ...], head: str, exhaustive: bool) -> Plan:
        """The finished Plan, with why the rest is pending."""
        self.reservations.put_off_the_due()
        return Plan(
            tuple(self.claims),
            tuple(self.actions),
            tuple(verdict for verdict in verdicts if verdict.job not in self.discarded),
            head,
            exhaustive,
            withdrawn=tuple(self.withdrawn),
            reservations=self.reservations.news,
            cells=tuple(self.transaction.cell_steps),
        )


def _in_order(record: JobRecord, placement: Placement) -> Placement:
    """A job that lost hardware has the ranks that it had, wherever it starts."""
    return placement if record.former is None else in_former_order(record.former, placement)


def _resizes(action: Action, attempt: AttemptRecord) -> bool:
    return isinstance(action, Resize) and action.id.job == attempt.job.id and action.id.attempt == attempt.number
