"""Reservations: devices and a time for jobs that do not fit now, so that no job that passes them delays them.

EASY backfilling reserves for the head only, conservative backfilling for every pending job (Mu'alem and Feitelson, IEEE
TPDS 2001). What is reserved are exact devices, so that a gang that needs a rack gets one. A job that takes some of the
head's leaves it a place elsewhere at the same time.
"""

from __future__ import annotations

from phalanx.cluster.capacity import Booking
from phalanx.cluster.cluster import Health
from phalanx.engine.preempt.preemption import PreemptionPlan
from phalanx.engine.reserve.blocked import BlockedReservations, BlockedSeats
from phalanx.engine.reserve.blocks import Blocks
from phalanx.engine.reserve.earliest import EarliestSearch, Interval
from phalanx.engine.reserve.overlap import draw_on_the_same, meet, without
from phalanx.engine.reserve.profile import End, Profile, Release, Underway
from phalanx.engine.state.order import whole_key
from phalanx.engine.state.records import FOREVER_MS, AttemptRecord, JobRecord
from phalanx.engine.transaction.transaction import Closed, Cut, Opened, Transaction
from phalanx.placement.gang import GangTrial
from phalanx.policy.policy import Key, Reserve
from phalanx.protocol.plan import RESERVATIONS_MAX, Reservation
from phalanx.protocol.reason import Reason

DEPTHS = {Reserve.NOBODY: 0, Reserve.HEAD: 1, Reserve.EVERYBODY: RESERVATIONS_MAX}

MAKES_MAX = 128
"""Reservations that one decision makes for overdue jobs: a bound on work. Past it those that are made stay as they are.
The rest is made when pending jobs are next looked at, since something grew."""


class Reservations:
    """The reservations of one decision: as they were while nothing unexpected has happened, else made anew.

    `changes` counts how often something else was reserved for a job than before, so that other jobs may have that.
    Jobs were `kept_off` that would have fitted, but would have delayed a job there.
    """

    def __init__(self, transaction: Transaction, now: int, underway: Underway) -> None:
        self.transaction = transaction
        self._underway = underway
        self._profile = Profile(transaction, now, underway)
        self._search = EarliestSearch(transaction, now, self._profile)
        self.state = transaction.state
        self.now = now
        self.depth = DEPTHS[self.state.policy.reserve]
        self._overdue_only = not self.depth and (bool(self.state.reservations) or self.state.any_overdue)
        if self._overdue_only:
            self.depth = RESERVATIONS_MAX
        self.made: list[Reservation] = []
        self.changes = 0
        self._blocked = BlockedReservations()
        self._blocked_seats = BlockedSeats(transaction)
        self._makes_left = MAKES_MAX if self._overdue_only else FOREVER_MS
        self.kept_off: dict[str, None] = {}
        self._intervals: list[Interval] = []
        self._grew = self._placed = False
        reservations_stale = self.state.reservations_stale
        for kept in self.state.reservations:
            record = self.state.jobs[kept.job]
            if record.queued is None:
                continue
            # A job that should have started before now was held up by one that runs longer than expected.
            reservations_stale = reservations_stale or kept.at_ms < now
            if reservations_stale or (kept.at_ms == now and not self._may_start(record)):
                self.make(record)
            else:
                self._add(record, kept)

    @property
    def news(self) -> tuple[Reservation, ...] | None:
        """The reservations, if they are not those that are known already."""
        made = tuple(self.made)
        return made if made != self.state.reservations else None

    @property
    def vacant(self) -> bool:
        """Whether a job that had a reservation is gone, or none could be made on hardware that may be back now."""
        if len(self.made) < len(self.state.reservations):
            return True
        return self.depth > 0 and any(waiting.verdict is Reason.UNHEALTHY for waiting in self.state.classes.values())

    @property
    def nodes(self) -> int:
        """The nodes on which something is reserved, or was until now."""
        found, topology = 0, self.state.topology
        for _, _, bookings in self._intervals:
            for booking in bookings:
                found |= topology.bit[booking.node]
        for known in self.state.reservations:
            for slot in known.placement.slots:
                found |= topology.bit[topology.number[slot.node]]
        return found

    def _may_start(self, record: JobRecord) -> bool:
        """Whether a job whose time has come finds what was reserved for it; then that stays so until its turn."""
        return self.state.shortfall(record) is None and self._search.place(record) is not None

    def seat(self, record: JobRecord) -> GangTrial | None:
        """Places a job so that it delays no job before it that has a reservation.

        Nor those behind, where there is a place beside what is reserved for them. A job that starts at its time
        elsewhere than was reserved for it would put off all that follow.
        """
        if self.state.capacity.free_total < record.gpus_min:
            return None
        in_the_way = self.before(record)
        left_for = tuple(made.job for made, _ in in_the_way)
        if self._blocked_seats.knows(record, left_for, self.made):
            return None
        seated = self._seat(record, in_the_way)
        if seated is None:
            self._blocked_seats.note(record, left_for)
        return seated

    def _seat(self, record: JobRecord, in_the_way: list[tuple[Reservation, tuple[Booking, ...]]]) -> GangTrial | None:
        others = [each for each in self._left_for(record) if each[0].job != record.job.id]
        if len(others) > len(in_the_way) and (seated := self._seat_clear_of(record, others)):
            return seated
        if not in_the_way:
            return self.transaction.seat(record)
        mark = self.transaction.mark()
        seated = self._seat_beside(record, in_the_way, [])
        if seated is None and self.depth == 1:
            # The head needs no more than a place at its time, on whichever devices.
            seated = self.transaction.seat(record)
            if seated is not None and not self._has_place(in_the_way[0][0]):
                self.transaction.undo_to(mark)
                return None
        for shunned in (self._shared_nodes(in_the_way), self.reserved_nodes(record)):
            if seated is None or not self._is_beside_too_many([seat.booking for seat in seated.seats], in_the_way):
                return seated
            self.transaction.undo_to(mark)
            seated = self._seat_beside(record, in_the_way, shunned)
        return seated

    def _seat_clear_of(
        self, record: JobRecord, others: list[tuple[Reservation, tuple[Booking, ...]]]
    ) -> GangTrial | None:
        """Places a job so that it takes nothing of what is reserved for other jobs."""
        mark = self.transaction.mark()
        seated = self._seat_beside(record, others, [])
        if seated is None or not self._is_beside_too_many([seat.booking for seat in seated.seats], others):
            return seated
        self.transaction.undo_to(mark)
        return None

    def _seat_beside(
        self, record: JobRecord, before: list[tuple[Reservation, tuple[Booking, ...]]], shunned: list[int]
    ) -> GangTrial | None:
        """Places a job on what is free and not reserved for those before it, and not on some nodes."""
        blocks = Blocks(self.state.capacity, whole_gpus=record.whole_gpus)
        blocks.lay(bookings for _, bookings in before)
        with Closed(self.state, shunned):
            seated = self.transaction.seat(record)
        blocks.lift()
        return seated

    def _shared_nodes(self, before: list[tuple[Reservation, tuple[Booking, ...]]]) -> list[int]:
        """Healthy nodes on which shares of devices are reserved."""
        nodes = dict.fromkeys(each.node for _, bookings in before for each in bookings if each.portion is not None)
        return [node for node in nodes if self.state.capacity.health[node] is Health.HEALTHY]

    def block(self, priority: int | None = None) -> Blocks:
        """Holds what is free now of all that is reserved, until that is lifted; with a priority, of what is reserved
        for jobs of no lower one.
        """
        blocks = Blocks(self.state.capacity)
        blocks.lay(
            bookings
            for made, (_, _, bookings) in zip(self.made, self._intervals, strict=True)
            if priority is None or self.state.jobs[made.job].job.priority >= priority
        )
        return blocks

    def _is_beside_too_many(
        self, bookings: list[Booking], before: list[tuple[Reservation, tuple[Booking, ...]]]
    ) -> bool:
        """Whether a job that has just been placed on shares of devices keeps a job before it off them.

        What is free of a device that is shared cannot be blocked: whether both fit there is tried.
        """
        if all(booking.portion is None for booking in bookings):
            return False
        return any(meet(bookings, reserved) and not self._has_place(made) for made, reserved in before)

    def _has_place(self, made: Reservation) -> bool:
        """Whether a job would still have a place at its reserved time, with the attempts gone that have left by then.

        Of attempts past their time only those count as gone for which it waits already: no job behind it has it wait
        for one more of them.
        """
        mark, at_ms = self.transaction.mark(), max(made.could_start_ms, self.now)
        ends = [end for end in self._profile.ends() if end[0] <= at_ms]
        awaited = self._profile.late_on(self.state.bookings(self.state.jobs[made.job].asked, made.placement))
        self._profile.release([end for end in ends if not self._profile.is_late(end) or end[1] in awaited])
        with self._in_a_moment(), Opened(self.state):
            found = self._search.place(self.state.jobs[made.job], at_ms)
        self.transaction.undo_to(mark)
        return found is not None

    def _in_a_moment(self) -> Cut:
        """A block in which what is reserved for overdue jobs may also lie on devices that are being repartitioned."""
        return Cut(self.state, self.state.cuts.values() if self._overdue_only else ())

    def before(self, record: JobRecord) -> list[tuple[Reservation, tuple[Booking, ...]]]:
        """What is reserved for those before a job from a moment on at which it would not have ended."""
        key = whole_key(self.state, record)
        return [each for each in self._left_for(record) if self._key(each[0]) < key]

    def _left_for(self, record: JobRecord) -> list[tuple[Reservation, tuple[Booking, ...]]]:
        """What is reserved from a moment on at which a job that starts now would not have ended."""
        end_ms = self.now + record.estimate_ms
        every = zip(self.made, self._intervals, strict=True)
        return [(made, bookings) for made, (at_ms, _, bookings) in every if at_ms < end_ms]

    def delayed_by(self, record: JobRecord, room: PreemptionPlan) -> bool:
        """Whether a job before this one would be delayed if this one had what its preemption frees.

        What it reclaims from another queue is its own, whatever is reserved there.
        """
        if not self._delays(record, room):
            return False
        self.kept_off[record.job.id] = None
        return True

    def _delays(self, record: JobRecord, room: PreemptionPlan) -> bool:
        before = self.before(record)
        if self._takes_of(record, room, before):
            return True
        if self._overdue_only and not room.victims and not room.shrunk and not room.moves:
            return self._lacks_beside(room, before)
        return any(
            at_ms < self._end_ms(move.attempt) and meet(move.bookings, reserved)
            for at_ms, _, reserved in self._intervals
            for move in room.moves
        )

    def _takes_of(
        self, record: JobRecord, room: PreemptionPlan, before: list[tuple[Reservation, tuple[Booking, ...]]]
    ) -> bool:
        """Whether a preemption takes devices that are reserved for jobs before this one.

        What it reclaims from other queues is its own. What lies free beside that it has only before jobs that would
        borrow it.
        """
        lent = [victim for victim in room.victims if self.state.quotas and victim.job.queue != record.job.queue]
        taken = without(room.bookings, [booking for victim in lent for booking in victim.bookings])
        for made, reserved in before:
            holder = self.state.jobs[made.job]
            gives_way = bool(lent) and self.state.quotas.would_borrow(holder.job.queue, holder.need)
            if not gives_way and meet(taken, reserved):
                return True
        return False

    def _lacks_beside(self, room: PreemptionPlan, before: list[tuple[Reservation, tuple[Booking, ...]]]) -> bool:
        """Whether a job would have no place at its reserved time for want of CPUs or the like, of which a placement
        beside terminating attempts takes some on the same node.
        """
        beside = [made for made, reserved in before if draw_on_the_same(room.bookings, reserved)]
        if not beside:
            return False
        mark = self.transaction.mark()
        if not self.transaction.hold(room.bookings):
            self.transaction.claim(room.bookings)
        lacks = not all(self._has_place(made) for made in beside)
        self.transaction.undo_to(mark)
        return lacks

    def _end_ms(self, attempt: AttemptRecord) -> int:
        record = self.state.jobs[attempt.job.id]
        return self._profile.expected_ms(record, self.now + record.estimate_ms - record.executed_ms(self.now))

    def _key(self, made: Reservation) -> Key:
        return whole_key(self.state, self.state.jobs[made.job])

    def reserved_nodes(self, record: JobRecord) -> list[int]:
        """Healthy nodes on which something is reserved that a job would delay there."""
        nodes = dict.fromkeys(booking.node for _, bookings in self.before(record) for booking in bookings)
        return [node for node in nodes if self.state.capacity.health[node] is Health.HEALTHY]

    def hold_back(self, record: JobRecord) -> bool:
        """Whether a job that may not start now would fit, were nothing reserved."""
        if not self._intervals:
            return False
        mark = self.transaction.mark()
        fits = self.transaction.seat(record) is not None
        self.transaction.undo_to(mark)
        return fits

    @property
    def spare_ms(self) -> int:
        """How long a job may run that takes devices which are reserved for later."""
        return min((at_ms for at_ms, _, _ in self._intervals), default=FOREVER_MS) - self.now

    def started(self, record: JobRecord, bookings: list[Booking], release: Release) -> bool:
        """Drops the reservation of a job that gets its devices; whether it had one, which other jobs may have now."""
        if self.depth:
            self._placed = True
            self._profile.planned.append((self._planned_end_ms(record), release, bookings))
        for i, made in enumerate(self.made):
            if made.job == record.job.id:
                del self.made[i], self._intervals[i]
                self.changes += 1
                self._grew = True
                return True
        if self.made:
            self._make_way(record, bookings)
        return False

    def _planned_end_ms(self, record: JobRecord) -> int:
        """When one that starts will have left: for the overdue, as it will be expected of its attempt from then on."""
        if not self._overdue_only:
            return self.now + record.estimate_ms
        return self.now + max(record.estimate_ms - record.executed_before_ms, 0)

    def grew(self) -> None:
        """Some job may start at another time than is reserved for it: there is more to be had, or attempts leave."""
        self._grew = True

    def renew(self) -> None:
        """Reserves anew for all, if jobs were placed since that was last done, and some may start earlier by now.

        A job that was placed on free devices lets none start earlier: all that are reserved for later stay as they are.
        """
        if self.made and self._placed and self._grew:
            self._placed = self._grew = False
            self._make_again(0)

    def put_back(self, bookings: list[Booking]) -> list[End]:
        """Forgets a start of this decision that is not to be, or is tried without; what was planned until now."""
        self._grew = True
        planned = self._profile.planned
        self._profile.planned = [end for end in planned if end[2] is not bookings]
        return planned

    def moved(self, had: list[Booking], has: list[Booking], release: Release) -> None:
        """A job that this decision gives devices has other devices than was planned."""
        self._grew = True
        self._profile.planned = [
            (end_ms, release, has) if list(bookings) == had else (end_ms, planned, bookings)
            for end_ms, planned, bookings in self._profile.planned
        ]

    def plan_again(self, planned: list[End]) -> None:
        """Has what was planned before be so after all."""
        self._profile.planned = planned

    def _make_way(self, record: JobRecord, bookings: list[Booking]) -> None:
        """Reserves anew for jobs behind one that has no reservation and starts before them. Likewise for jobs before it
        whose devices it has by its quota, with all behind these.
        """
        key, end_ms = whole_key(self.state, record), self.now + record.estimate_ms
        kept = 0
        for made, (at_ms, _, reserved) in zip(self.made, self._intervals, strict=True):
            if key < self._key(made) or (at_ms < end_ms and meet(bookings, reserved)):
                break
            kept += 1
        self._make_again(kept)

    def _make_again(self, kept: int) -> None:
        """Reserves anew for all but the first so many."""
        behind = self.made[kept:]
        if self._makes_left < len(behind):
            return
        del self.made[kept:], self._intervals[kept:]
        self._make_behind(behind)

    def _make_behind(self, behind: list[Reservation]) -> None:
        """Reserves for the jobs whose reservations these were."""
        for made in behind:
            self.make(self.state.jobs[made.job])
        self.changes += any(each not in self.made for each in behind)

    def refused(self, record: JobRecord) -> bool:
        """Reserves for a refused job, if it is one of those that get a reservation; whether more jobs may get one."""
        if not self.depth or (self._overdue_only and not record.overdue):
            return False
        made = next((made for made in self.made if made.job == record.job.id), None)
        if made is None:
            self._insert(record)
        elif made.at_ms <= self.now:
            self._put_off(made)
        return len(self.made) < self.depth

    def would_change_for(self, record: JobRecord) -> bool:
        """Whether something else may be reserved for a job if it is refused once more."""
        if not self.depth or (self._overdue_only and not record.overdue):
            return False
        made = next((made for made in self.made if made.job == record.job.id), None)
        if made is not None:
            return made.at_ms <= self.now
        return len(self.made) < self.depth or whole_key(self.state, record) < self._key(self.made[-1])

    def put_off_the_due(self) -> None:
        """Reserves anew for jobs whose time has come, and that do not start."""
        while due := [made for made in self.made if made.at_ms <= self.now]:
            self._put_off(due[0])

    def _put_off(self, made: Reservation) -> None:
        """Reserves for a job at another time than it was; it may be that there is none."""
        at = self.made.index(made)
        del self.made[at], self._intervals[at]
        self.changes += 1
        self._insert(self.state.jobs[made.job])

    def _insert(self, record: JobRecord) -> None:
        """Reserves for a job before those behind it in the order, which then have what is left."""
        key = whole_key(self.state, record)
        kept = len(self.made)
        while kept and key < self._key(self.made[kept - 1]):
            kept -= 1
        behind, intervals = self.made[kept:], self._intervals[kept:]
        if self._makes_left <= len(behind) or self._blocked.knows(record, kept, self._stage):
            return
        del self.made[kept:], self._intervals[kept:]
        self.make(record)
        if len(self.made) == kept:
            # A job that gets none takes nothing from those behind.
            self._blocked.note(record, kept)
            self.made += behind
            self._intervals += intervals
            return
        self._make_behind(behind)

    @property
    def _stage(self) -> tuple[int, ...]:
        """How far the plan is: until that changes there is no more to be reserved than before."""
        leaving, promoted, withdrawn = self._underway
        return (self.changes, len(self._profile.planned), len(leaving), len(promoted), len(withdrawn))

    def make(self, record: JobRecord) -> None:
        """Reserves for a job behind those that have a reservation already."""
        if len(self.made) < self.depth:
            self._makes_left -= 1
            with self._in_a_moment(), Opened(self.state):
                found = self._search.find(record, self._intervals)
            if found is not None:
                self._add(record, found)

    def _add(self, record: JobRecord, reservation: Reservation) -> None:
        self.made.append(reservation)
        bookings = tuple(self.state.bookings(record.asked, reservation.placement))
        # One that could have started before could start now.
        since_ms = max(reservation.could_start_ms, self.now)
        self._intervals.append((since_ms, since_ms + record.estimate_ms, bookings))
