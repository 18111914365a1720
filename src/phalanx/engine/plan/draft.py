"""Drafts: a Plan while it is being made, on the trial that shows what it would do."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from phalanx.cluster.bits import members
from phalanx.cluster.capacity import Booking
from phalanx.cluster.device import layout_wanted, repartition
from phalanx.cluster.mig import Layout
from phalanx.engine.fold.adjust import step_towards
from phalanx.engine.plan.begin import begin
from phalanx.engine.plan.loans import Loan, Loans
from phalanx.engine.preempt.ceiling import Ceiling, Ceilings
from phalanx.engine.preempt.extras import are_lent
from phalanx.engine.preempt.moves import Move
from phalanx.engine.preempt.need import need_of_others
from phalanx.engine.preempt.relocate import guaranteed, landing
from phalanx.engine.preempt.room import Room, make_room, room_beside
from phalanx.engine.preempt.stops import may_stop
from phalanx.engine.preempt.way import Context
from phalanx.engine.reserve.holds import Holds
from phalanx.engine.reserve.reservations import End, Reservations, Underway
from phalanx.engine.state.elastic import does_without, lost, missing, most, surplus
from phalanx.engine.state.records import AttemptRecord, Group, JobRecord, Phase, StopReason, need_of, usage_of
from phalanx.engine.transaction import cells as cells_seats
from phalanx.engine.transaction.suspension import in_the_way_of, moved_memory, own_memory
from phalanx.engine.transaction.trial import Trial
from phalanx.placement.gang import GangTrial
from phalanx.placement.place import placement_of, slots_of
from phalanx.placement.placement import Placement, Slot
from phalanx.placement.ranks import with_mesh
from phalanx.policy.policy import Targets
from phalanx.protocol.action import Action, ActionId, Repartition, Resize, Stop, Suspend
from phalanx.protocol.plan import Claim, Plan, Verdict
from phalanx.workload.gang import Role
from phalanx.workload.job import Kind

RECLAIMS_MAX = 32
"""Searches of one decision, by those who may have back what others borrow, that may come to nothing: a bound on work.
Those of the first in the order are made."""


@dataclass(frozen=True, slots=True)
class Untouchable:
    """Keys of attempts that are in any of these, as they are at the moment of asking."""

    leaving: Container[str]
    touched: Container[str]
    withdrawn: Container[str]

    def __contains__(self, key: object) -> bool:
        return key in self.leaving or key in self.touched or key in self.withdrawn


class Draft:
    """Claims and actions so far."""

    def __init__(self, trial: Trial, now: int) -> None:
        self.trial = trial
        self.state = trial.state
        self.now = now
        self.claims: list[Claim] = []
        self.actions: list[Action] = []
        self.leaving: dict[str, AttemptRecord] = dict(self.state.leaving)
        self.leaving_gpus = sum(attempt.gpus for attempt in self.leaving.values())
        self.promised_gpus = sum(self._held_gpus(claim.bookings) for claim in self.state.waiting_claims.values())
        self.promoted: dict[str, AttemptRecord] = {}
        self.withdrawn: dict[str, AttemptRecord] = {}
        # Not the draft itself: two that hold one another stay until the collector comes, which is seldom in long runs.
        self.reservations = Reservations(trial, now, Underway(self.leaving, self.promoted, self.withdrawn))
        self.holds = Holds(trial)
        self.extras_are_lent = are_lent(self.state)
        self.fresh = self.state.capacity.grown | self.reservations.nodes
        self.grown: list[int] = []
        self.opened = False
        self.newest_bookings: list[Booking] = []
        self.newest_release = trial.release
        self.loans = Loans(self.state.quotas)
        self.put_back: list[JobRecord] = []
        self.reclaims_left = RECLAIMS_MAX
        self.stopped: dict[str, AttemptRecord] = {}
        self.discarded: dict[str, None] = {}
        self._ceilings = Ceilings(self.state)
        self._giving_way: dict[Group, list[Group]] = {}
        self._touched: dict[str, None] = {}
        self._shrinking: dict[str, tuple[Slot, ...]] = {}
        self.cell_heads: dict[tuple[str, bool], tuple[JobRecord, int | None]] = {}
        self.cell_ends: list[tuple[int, str]] = []

    def stop_who_must_leave(self) -> None:
        """Stops the cancelled, those on failed hardware, those who ran too long, and repeats stops that failed."""
        for key, reason in self.state.to_stop.items():
            job, _, number = key.rpartition("/")
            attempt = self.state.attempt(job, int(number))
            assert attempt is not None, f"{key} is to be stopped but is gone"
            self._stop(attempt, reason)

    def _stop(self, attempt: AttemptRecord, reason: StopReason) -> None:
        self._touched[attempt.key] = None
        action = ActionId(self.state.term, attempt.job.id, attempt.number, attempt.next_seq)
        grace_ms = attempt.job.grace_ms if not attempt.stop_failures else 0
        self.actions.append(Stop(action, grace_ms, reason.value))
        self._have_leave(attempt)

    def _suspend(self, attempt: AttemptRecord, memory_mb: int) -> None:
        """Has an attempt leave its devices and keep its processes, with so much memory of its node booked for it."""
        held = self.trial.hold((moved_memory(attempt, memory_mb),))
        assert held, f"{attempt.key} was to find memory on its node"
        self._touched[attempt.key] = None
        action = ActionId(self.state.term, attempt.job.id, attempt.number, attempt.next_seq)
        self.actions.append(Suspend(action, memory_mb))
        self._have_leave(attempt)
        self.trial.claim((own_memory(attempt),))

    def _have_leave(self, attempt: AttemptRecord) -> None:
        if attempt.key not in self.leaving:
            self.leaving[attempt.key] = attempt
            self.leaving_gpus += attempt.gpus
            self.trial.use(attempt.job.queue, usage_of(attempt.staying), -1)
            self.trial.cede(attempt.staying)
        self._grow(attempt.bookings)

    def discard_for(self, record: JobRecord) -> None:
        """Has what is left of suspended jobs stopped, as far as a job before them would fit but for that."""
        behind = in_the_way_of(self.state, record)
        if not behind or not self._fits_without(record, behind):
            return
        for other in list(behind):
            fewer = [each for each in behind if each is not other]
            if fewer and self._fits_without(record, fewer):
                behind = fewer
        for each in behind:
            assert each.kept is not None, f"nothing is kept of job {each.job.id}"
            action = ActionId(self.state.term, each.job.id, each.kept.attempt, each.kept.next_seq)
            self.actions.append(Stop(action, 0, StopReason.PREEMPTED.value))
            self.discarded[each.job.id] = None

    def _fits_without(self, record: JobRecord, others: Sequence[JobRecord]) -> bool:
        mark = self.trial.mark()
        self.trial.release(each.kept.booking for each in others if each.kept is not None)
        fits = self.trial.seat(record) is not None or (
            self.could_make_room(record)
            and make_room(self.trial, record, replace(self.context(record, None), ceiling=self._ceiling_now(record)))
            is not None
        )
        self.trial.undo_to(mark)
        return fits

    def _ceiling_now(self, record: JobRecord) -> Ceiling:
        return Ceiling(self.state, record, self.leaving)

    def _grow(self, bookings: Iterable[Booking]) -> None:
        """Takes note of where others may find more than before. `grown` also tells a second time on one node."""
        nodes = 0
        for booking in bookings:
            nodes |= self.state.topology.bit[booking.node]
        self.fresh |= nodes
        self.grown.append(nodes)
        self.holds.begin_anew()

    @property
    def growths(self) -> int:
        """How often others might find more than before."""
        return len(self.grown)

    def start_who_was_promised(self) -> None:
        """Starts of claims whose devices are all free by now."""
        for attempt in self.state.waiting_claims.values():
            if attempt.key not in self.withdrawn and self.trial.promote(attempt):
                self._touched[attempt.key] = None
                self.promoted[attempt.key] = attempt
                self._open_shared(attempt.bookings)
                self._begin(attempt.job.id, attempt.number, attempt.next_seq, attempt.placement, attempt.bookings)
        if self.state.waits_are_limited and (self.opened or self.loans.anybody_made_way):
            self._start_who_waits_no_longer()

    def _start_who_waits_no_longer(self) -> None:
        """Starts of claims of this plan, for which others were in the way who start by now, or do not after all."""
        for i, claim in enumerate(self.claims):
            bookings = self._bookings(claim) if claim.waits else []
            if bookings and self.trial.keep_promise(bookings):
                self.claims[i] = structs.replace(claim, waits=False)
                self._open_shared(bookings)
                self._begin(claim.job, claim.attempt, self._next_seq(claim), claim.placement, bookings)

    def _open_shared(self, bookings: Iterable[Booking]) -> None:
        """A device of which a part was promised took nobody else; now that the part is held, the rest is to be had.

        So are CPUs and the like of the node. Where nobody waits too long, the next decision is soon enough for these.
        """
        for booking in bookings:
            if booking.portion is not None or (booking.needs and self.state.waits_are_limited):
                self.opened = True
                self._grow((booking,))

    def start_who_is_prepared(self) -> None:
        """Starts of those whose devices have been cut; if something undid it, they are cut again."""
        for attempt in self.state.preparing.values():
            if not attempt.in_flight and attempt.key not in self.withdrawn:
                self._touched[attempt.key] = None
                self._begin(attempt.job.id, attempt.number, attempt.next_seq, attempt.placement, attempt.bookings)

    def _begin(self, job: str, attempt: int, seq: int, placement: Placement, bookings: Sequence[Booking]) -> None:
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
        placement = placement_of(seated)
        number = record.next_attempt
        bookings = self.newest_bookings = [seat.booking for seat in seated.seats]
        self.newest_release = self.trial.release
        self.trial.use(record.job.queue, usage_of(bookings), 1)
        self.claims.append(Claim(record.job.id, number, placement))
        self._begin(record.job.id, number, record.next_seq, placement, bookings)
        if self.state.quotas:
            self.loans.add(Loan(record, bookings))

    def take_back(self, loan: Loan) -> list[End]:
        """As if a plan did not lend something; what was planned before of when who leaves."""
        if loan.waits:
            self.promised_gpus -= self._held_gpus(loan.bookings)
        give_back = self.trial.unclaim if loan.waits else self.trial.release
        give_back(loan.bookings)
        self.trial.use(loan.record.job.queue, usage_of(loan.bookings), -1)
        return self.reservations.put_back(loan.bookings)

    def seat(self, record: JobRecord) -> GangTrial | None:
        """Seats a job on what is free, so that it delays nobody for whom something is reserved."""
        # Where nothing is reserved, nobody can be delayed.
        return self.reservations.seat(record) if self.reservations.made else self.trial.seat(record)

    def make_way(self, loan: Loan, taker: JobRecord) -> None:
        """One that was to have devices waits on, for another."""
        record, bookings = loan.record, loan.bookings
        job, number = record.job.id, record.next_attempt
        self.loans.make_way(loan, taker)
        self.claims = [claim for claim in self.claims if claim.job != job]
        self.actions = [action for action in self.actions if (action.id.job, action.id.attempt) != (job, number)]
        self.reservations.put_back(bookings)
        self.put_back.append(record)
        self.holds.waits_on(record)
        self._grow(bookings)

    def promise(self, record: JobRecord, room: Room, stopped: tuple[AttemptRecord, ...] = ()) -> None:
        """A claim on devices that others still hold, and the stops that free them; a start, if only claims gave way."""
        self._make_way(room)
        victims = tuple(victim.key for victim in (*stopped, *room.victims))
        number = record.next_attempt
        self.newest_bookings = list(room.bookings)
        waits = not self.trial.hold(room.bookings)
        self.newest_release = self.trial.unclaim if waits else self.trial.release
        self.trial.use(record.job.queue, usage_of(room.bookings), 1)
        self.claims.append(Claim(record.job.id, number, room.placement, waits, victims))
        if waits:
            self.promised_gpus += self._held_gpus(room.bookings)
            self.trial.claim(room.bookings)
        else:
            self._begin(record.job.id, number, record.next_seq, room.placement, room.bookings)
        # Where nobody waits too long, who is due it goes before, or has it back in the next decision.
        if self.state.quotas and self.state.waits_are_limited and not room.shrunk and not room.moves:
            self.loans.add(Loan(record, self.newest_bookings, waits, (*stopped, *room.victims)))

    def _make_way(self, room: Room) -> None:
        for victim in room.victims:
            if victim.phase is Phase.CLAIMED:
                self._withdraw(victim)
            elif victim.key in room.kept_mb:
                self._suspend(victim, room.kept_mb[victim.key])
            else:
                self._stop(victim, StopReason.PREEMPTED)
                self.stopped[victim.key] = victim
        for attempt, slots in room.shrunk:
            self._shrink_further(attempt, slots)
        for move in room.moves:
            self._move(move)

    def spare(self, victim: AttemptRecord) -> None:
        """Lets a victim of this plan run on where those who are promised its devices can have others.

        Those are left by who leaves already, or by who stands behind the victim and leaves in its place: stopped, it
        would go before them as soon as it stood in line again.
        """
        instead = self._instead_of(victim)
        if instead is None:
            return
        mark = self.trial.mark()
        actions, leaving, gpus = list(self.actions), dict(self.leaving), (self.leaving_gpus, self.promised_gpus)
        for attempt in instead:
            self._stop(attempt, StopReason.PREEMPTED)
            self.stopped[attempt.key] = attempt
        if not self._let_run_on(victim, instead):
            self.trial.undo_to(mark)
            self.actions, (self.leaving_gpus, self.promised_gpus) = actions, gpus
            self._let_leave(leaving)
            for attempt in instead:
                del self.stopped[attempt.key], self._touched[attempt.key]

    def _instead_of(self, victim: AttemptRecord) -> list[AttemptRecord] | None:
        """Who behind a victim would have to leave for it to stay, the last first, none needlessly; None if too few."""
        lacking = victim.gpus - self.free_soon
        if lacking <= 0:
            return []
        key = victim.standing or ()
        if self.state.gpus_behind(key) < lacking:
            return None
        chosen: list[AttemptRecord] = []
        untouchable, heads = self.untouchable, self._heads_over(victim)
        for attempt in self.state.behind(key):
            if lacking <= 0:
                break
            if (
                may_stop(attempt)
                and attempt.phase is not Phase.CLAIMED
                and attempt.key not in untouchable
                and all(self.state.yields(head, attempt) for head in heads)
            ):
                chosen.append(attempt)
                lacking -= attempt.gpus
        for attempt in chosen[::-1]:
            if lacking + attempt.gpus <= 0:
                chosen.remove(attempt)
                lacking += attempt.gpus
        return chosen if lacking <= 0 else None

    def _heads_over(self, victim: AttemptRecord) -> list[JobRecord]:
        """For whom a victim was stopped, where there are queues: whoever leaves in its place must give way to them."""
        if not self.state.quotas:
            return []
        return [self.state.jobs[claim.job] for claim in self.claims if victim.key in claim.victims]

    def _let_run_on(self, victim: AttemptRecord, instead: Sequence[AttemptRecord]) -> bool:
        """Moves the claims that lie on a victim's devices to those of others who leave; whether all find room there."""
        mark = self.trial.mark()
        promised = [i for i, claim in enumerate(self.claims) if claim.waits and self._lies_on(claim, victim)]
        for i in promised:
            bookings = self._bookings(self.claims[i])
            self.trial.unclaim(bookings)
            self.trial.use(self._queue(self.claims[i]), usage_of(bookings), -1)
        if not self._stays(victim):
            self.trial.undo_to(mark)
            return False
        others = {key: attempt for key, attempt in self.leaving.items() if key != victim.key}
        moved: dict[int, tuple[Claim, Room]] = {}
        had = {i: self._bookings(self.claims[i]) for i in promised}
        promised_gpus = self.promised_gpus
        for i in promised:
            claim = self.claims[i]
            room = room_beside(self.trial, self.state.jobs[claim.job], others)
            if room is None:
                self.trial.undo_to(mark)
                self.promised_gpus = promised_gpus
                return False
            self.promised_gpus -= self._held_gpus(self._bookings(claim))
            waits = not self.trial.hold(room.bookings)
            if waits:
                self.promised_gpus += self._held_gpus(room.bookings)
                self.trial.claim(room.bookings)
            self.trial.use(self._queue(claim), usage_of(room.bookings), 1)
            victims = tuple(key for key in claim.victims if key != victim.key)
            if self.state.quotas and victim.key in claim.victims:
                victims += tuple(attempt.key for attempt in instead)
            moved[i] = Claim(claim.job, claim.attempt, room.placement, waits, victims), room
        self.loans.forget({claim.job: None for claim, _ in moved.values()})
        self.claims = [moved[i][0] if i in moved else claim for i, claim in enumerate(self.claims)]
        self.actions = [action for action in self.actions if not _stops(action, victim)]
        for i, (claim, room) in moved.items():
            release = self.trial.unclaim if claim.waits else self.trial.release
            self.reservations.moved(had[i], list(room.bookings), release)
            if not claim.waits:
                self._begin(claim.job, claim.attempt, self._next_seq(claim), claim.placement, room.bookings)
        self._let_leave(others)
        self.leaving_gpus -= victim.gpus
        del self.stopped[victim.key], self._touched[victim.key]
        return True

    def _let_leave(self, leaving: dict[str, AttemptRecord]) -> None:
        """Has these leave and no others, for all who look at who leaves."""
        self.leaving.clear()
        self.leaving.update(leaving)

    def _stays(self, victim: AttemptRecord) -> bool:
        """As if a victim stayed after all; not if its queue may not have what it holds any more."""
        queue, held = victim.job.queue, usage_of(victim.staying)
        if self.state.quotas and self.state.quotas.shortfall(queue, held) is not None:
            return False
        self.trial.keep(victim.staying)
        self.trial.use(queue, held, 1)
        return True

    def context(self, record: JobRecord, fresh: int | None) -> Context:
        """What is known when room is made for a job."""
        return Context(
            self.leaving, self.untouchable, fresh, self.now, self.ceiling(record), self._giving_way, self._shrinking
        )

    def ceiling(self, record: JobRecord) -> Ceiling:
        """That of a job with the plan as it is. How long that is tells how far it is, where nothing is taken back."""
        if self.state.policy.targets is not Targets.KEEP:
            return Ceiling(self.state, record, self.leaving)
        return self._ceilings.of(record, self.leaving, (len(self.claims), len(self.actions), self.growths))

    def could_make_room(self, record: JobRecord) -> bool:
        """Whether anybody might make way for a job: where running jobs stand in order, by the GPUs of those behind."""
        state = self.state
        if not state.makes_room:
            return False
        if state.quotas and state.quotas.may_reclaim(record.job.queue, record.need):
            return self.reclaims_left > 0
        if state.policy.targets is Targets.KEEP:
            if state.policy.preempts:
                return True
            # Where the policy has nobody give way, those who leave anyway leave room.
            return bool(self.leaving) and self.free_soon >= record.gpus_min and state.shortfall(record) is None
        if self.free_soon + state.gpus_behind(state.rank(record)) >= record.gpus_min:
            return True
        return bool(state.quotas) and state.quotas.may_reclaim(record.job.queue, need_of_others(state, record))

    @property
    def free_soon(self) -> int:
        """GPUs that are free or will be once those who are leaving have left, and are promised to nobody.

        Never fewer than are free: what is promised may also come of members that shrink away, or of moves.
        """
        return self.state.capacity.free_total + max(self.leaving_gpus - self.promised_gpus, 0)

    def _held_gpus(self, bookings: Iterable[Booking]) -> int:
        """How many of the GPUs of bookings somebody still holds."""
        held = self.state.capacity.held
        return sum((booking.devices & held[booking.node]).bit_count() for booking in bookings)

    def _next_seq(self, claim: Claim) -> int:
        return self.state.jobs[claim.job].next_seq

    def _queue(self, claim: Claim) -> str:
        return self.state.jobs[claim.job].job.queue

    def _bookings(self, claim: Claim) -> list[Booking]:
        return self.state.bookings(self.state.jobs[claim.job].asked, claim.placement)

    def _lies_on(self, claim: Claim, victim: AttemptRecord) -> bool:
        """Whether a claim needs anything that a victim holds."""
        nodes = [booking.node for booking in victim.bookings]
        return any(booking.node in nodes for booking in self._bookings(claim))

    def _withdraw(self, attempt: AttemptRecord) -> None:
        """Takes a claim back; what it lay on may be had by others, too."""
        self.withdrawn[attempt.key] = attempt
        self.holds.waits_on(self.state.jobs[attempt.job.id])
        if attempt.waits:
            self.promised_gpus -= self._held_gpus(attempt.bookings)
        give_back = self.trial.unclaim if attempt.waits else self.trial.release
        give_back(attempt.bookings)
        self.trial.use(attempt.job.queue, usage_of(attempt.bookings), -1)
        self._grow(attempt.bookings)

    @property
    def untouchable(self) -> Container[str]:
        """Attempts that this plan already starts, stops, resizes or takes a claim from."""
        return Untouchable(self.leaving, self._touched, self.withdrawn)

    def _shrink_further(self, attempt: AttemptRecord, going: tuple[Slot, ...]) -> None:
        """Has an attempt shrink once for all who are promised what it gives up."""
        before = self._shrinking.get(attempt.key, ())
        self._shrinking[attempt.key] = (*before, *going)
        self.actions = [action for action in self.actions if not before or not _resizes(action, attempt)]
        self._shrink(attempt, going, before)

    def _shrink(self, attempt: AttemptRecord, going: tuple[Slot, ...], before: tuple[Slot, ...] = ()) -> None:
        slots = attempt.placement.slots
        gone = [booking for slot, booking in zip(slots, attempt.bookings, strict=True) if slot in going]
        if self.state.cells is not None:
            cells_seats.shrink(self.trial, attempt, gone)
        self.trial.use(attempt.job.queue, usage_of(gone), -1)
        self.trial.cede(gone)
        self._resize(attempt, tuple(slot for slot in slots if slot not in going and slot not in before))
        self._grow(gone)

    def _move(self, move: Move) -> None:
        """Has an attempt go elsewhere: it holds the new devices at once, and the old ones until it has gone."""
        attempt = move.attempt
        self._touched[attempt.key] = None
        action = ActionId(self.state.term, attempt.job.id, attempt.number, attempt.next_seq)
        self.actions.append(Resize(action, move.placement))
        self.trial.cede(attempt.bookings)
        held = self.trial.hold(move.bookings)
        assert held, f"{attempt.key} was to land on what is free"

    def relocate(self) -> None:
        """Has running jobs go to the nodes that the policy wants them on, as far as they land there at once."""
        state = self.state
        if "resize" in state.lacks or any(attempt.phase is Phase.RESIZING for attempt in state.attempts_present()):
            return
        for job, node in state.policy.relocates(state):
            attempt = state.jobs[job].attempt
            move = None
            if attempt is not None and attempt.key not in self.untouchable:
                move = landing(self.trial, attempt, state.topology.number[node])
            if move is not None:
                self._gather(move)

    def promote_revocable(self) -> None:
        """Gives who runs on what others leave a guaranteed share, if the policy says by now that it is to have one."""
        state = self.state
        for attempt in state.revocable.values():
            if attempt.phase is Phase.RUNNING and attempt.key not in self.untouchable and "resize" not in state.lacks:
                gang = state.policy.shape(state.jobs[attempt.job.id], state)
                move = guaranteed(self.trial, attempt, gang)
                if move is not None:
                    self._gather(move)

    def adjust_shares(self) -> None:
        """Changes shares as the policy wants them, of who runs and is not touched by this plan."""
        state, untouchable = self.state, self.untouchable
        for job, wanted in state.adjustments.items():
            attempt = state.jobs[job].attempt
            if attempt is not None and attempt.key not in untouchable and attempt.grow_after_ms <= self.now:
                action = step_towards(state, attempt, wanted)
                if action is not None:
                    self._touched[attempt.key] = None
                    self.actions.append(action)

    def _gather(self, move: Move) -> None:
        """Has an attempt go to where the trial has it hold devices already."""
        attempt = move.attempt
        self._touched[attempt.key] = None
        action = ActionId(self.state.term, attempt.job.id, attempt.number, attempt.next_seq)
        self.actions.append(Resize(action, move.placement))
        self.trial.cede([booking for booking in attempt.bookings if booking not in move.bookings])

    def shed_lost_members(self) -> None:
        """Has services go on without the members that were on failed hardware."""
        for attempt in self.state.elastic.values():
            if attempt.job.kind is Kind.SERVICE and attempt.key not in self._touched:
                going = lost(attempt, self.state.capacity)
                if going and does_without(attempt, going):
                    self._shrink(attempt, tuple(going))

    def shrink_to_sizes(self) -> None:
        """Takes from elastic attempts what they have beyond what they may, or the policy wants them to have."""
        sets_sizes = self.state.policy.sets_sizes
        for attempt in self.state.elastic.values():
            if attempt.key not in self._touched:
                going = surplus(attempt, self.state.jobs[attempt.job.id].sizes if sets_sizes else most(attempt.job))
                if going:
                    self._shrink(attempt, tuple(going))

    def grow_who_could_use_more(self) -> None:
        """Elastic attempts take up what is free, the earliest submitted first, up to the sizes that the policy sets.

        Not what is reserved: nobody knows whether they would give it back in time.
        """
        blocks = self.reservations.block()
        for attempt in sorted(self.state.elastic.values(), key=lambda attempt: attempt.created_ms):
            if attempt.key in self._touched or attempt.grow_after_ms > self.now:
                continue
            sizes = self.state.jobs[attempt.job.id].sizes if self.state.policy.sets_sizes else None
            self._grow_by(attempt, missing(attempt, None if attempt.job.scale is not None else sizes))
        blocks.lift()

    def grow_on_free(self, attempt: AttemptRecord, role: Role, more: int) -> int:
        """Gives a service up to so many more replicas of what is free, and not reserved for jobs that go before it; how
        many it has got.
        """
        blocks = self.reservations.block(attempt.job.priority)
        got = self._grow_by(attempt, [(role, more)])
        blocks.lift()
        return got

    def _grow_by(self, attempt: AttemptRecord, more_of: Iterable[tuple[Role, int]]) -> int:
        slots = attempt.placement.slots
        for role, more in more_of:
            # Whole devices come of what is free; parts of them may also lie on what others share.
            if role.task.share is None and role.task.gpus > self.state.capacity.free_total:
                continue
            seats = self.trial.grow(attempt, role, self._within_quota(attempt, role, more))
            self.trial.use(attempt.job.queue, usage_of([seat.booking for seat in seats]), 1)
            slots += slots_of(self.state.topology, seats, 1 + max(slot.rank for slot in slots))
        if len(slots) > len(attempt.placement.slots):
            self._resize(attempt, slots)
        return len(slots) - len(attempt.placement.slots)

    def preempt_for_replicas(self, attempt: AttemptRecord, room: Room) -> None:
        """Has jobs make way for more replicas of a service. No other job is promised what they leave in this plan; the
        service grows in the decision that finds it free.
        """
        self._make_way(room)
        waits = not self.trial.hold(room.bookings)
        if waits:
            self.promised_gpus += self._held_gpus(room.bookings)
            self.trial.claim(room.bookings)
        self.trial.use(attempt.job.queue, usage_of(room.bookings), 1)

    def _within_quota(self, attempt: AttemptRecord, role: Role, more: int) -> int:
        """As many more members as the queue may have."""
        quotas, queue = self.state.quotas, attempt.job.queue
        while quotas and more and quotas.shortfall(queue, need_of((replace(role, replicas_min=more),))):
            more -= 1
        return more

    def _resize(self, attempt: AttemptRecord, slots: tuple[Slot, ...]) -> None:
        self._touched[attempt.key] = None
        action = ActionId(self.state.term, attempt.job.id, attempt.number, attempt.next_seq)
        placement = with_mesh(self.state.topology, attempt.job, Placement(slots))
        self.actions.append(Resize(action, placement))

    def plan(self, verdicts: tuple[Verdict, ...], head: str, exhaustive: bool) -> Plan:
        """The finished Plan, with why the rest waits."""
        self.reservations.put_off_the_due()
        return Plan(
            tuple(self.claims),
            tuple(self.actions),
            tuple(verdict for verdict in verdicts if verdict.job not in self.discarded),
            head,
            exhaustive,
            withdrawn=tuple(self.withdrawn),
            reservations=self.reservations.news,
            cells=tuple(self.trial.cell_steps),
        )


def _resizes(action: Action, attempt: AttemptRecord) -> bool:
    return isinstance(action, Resize) and action.id.job == attempt.job.id and action.id.attempt == attempt.number


def _stops(action: Action, attempt: AttemptRecord) -> bool:
    return isinstance(action, Stop) and action.id.job == attempt.job.id and action.id.attempt == attempt.number
