"""Preemption: which attempts must leave so that a head that does not fit can start, at the least loss of work."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from phalanx.cluster.capacity import Booking
from phalanx.engine.preempt.charge import Charge
from phalanx.engine.preempt.defragment import Defragmenting
from phalanx.engine.preempt.excess import Excess
from phalanx.engine.preempt.extras import Member, booking_of, lent_to
from phalanx.engine.preempt.moves import Move, Moving
from phalanx.engine.preempt.stops import FairStopping, OrderedStopping, OuterStopping, Stopping
from phalanx.engine.preempt.upper_bound import UpperBound
from phalanx.engine.preempt.victims import SEATINGS_MAX, VictimSearch
from phalanx.engine.preempt.way import Context
from phalanx.engine.state.elastic import surplus
from phalanx.engine.state.records import AttemptRecord, JobRecord, gpu_permille_of, usage_of
from phalanx.engine.state.state import State
from phalanx.engine.state.yielding import yields
from phalanx.engine.transaction.suspension import loss_gpu_ms
from phalanx.engine.transaction.transaction import Transaction
from phalanx.placement.gang import GangTrial
from phalanx.placement.place import placement_of
from phalanx.placement.placement import Placement, Slot
from phalanx.policy.policy import Targets


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """Where the head goes once the victims, and attempts that are terminating anyway, have left. Victims in `kept_mb`
    are suspended, and keep so much memory of their nodes; the rest is stopped.
    """

    placement: Placement
    bookings: tuple[Booking, ...]
    victims: tuple[AttemptRecord, ...] = ()
    shrunk: tuple[tuple[AttemptRecord, tuple[Slot, ...]], ...] = ()
    moves: tuple[Move, ...] = ()
    kept_mb: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Either:
    """What is in one or the other."""

    first: Container[str]
    second: Container[str]

    def __contains__(self, key: object) -> bool:
        return key in self.first or key in self.second


def plan_preemption(transaction: Transaction, head: JobRecord, context: Context) -> PreemptionPlan | None:
    """Where the head fits at the least harm: beside terminating attempts, by shrinking, moving, or stopping others.

    Of sets of victims it is the one that loses the least work, and none of them is not needed.
    """
    return (
        _wait_or_shrink(transaction, head, context)
        or _move(transaction, head, context)
        or _preempt(transaction, head, context)
    )


def _beside(
    transaction: Transaction,
    head: JobRecord,
    leaving: Mapping[str, AttemptRecord],
    way: Callable[[], PreemptionPlan | None],
    lent: Mapping[int, int] = MappingProxyType({}),
) -> PreemptionPlan | None:
    """Preempts in some way beside what terminating attempts leave; also beside what claims may lose."""
    mark = transaction.mark()
    transaction.vacancy.open(transaction, leaving, lent, _claims_stay(transaction.state, head))
    room = way()
    transaction.undo_to(mark)
    return room


def _claims_stay(state: State, head: JobRecord) -> bool:
    """Whether every claim is one of this plan, which no victim of a head can lose, and each of its tasks needs GPUs."""
    return not state.waiting_claims and state.cells is None and all(task.gpus for task in head.tasks.values())


def _wait_or_shrink(transaction: Transaction, head: JobRecord, context: Context) -> PreemptionPlan | None:
    """Not without elastic attempts, if none is terminating or the head may not have what those leave, or too little."""
    state, leaving = transaction.state, context.leaving
    waits = bool(leaving) and state.shortfall(head) is None and context.upper_bound.fits_beside()
    if not waits and not state.elastic:
        return None
    return _beside(
        transaction,
        head,
        leaving,
        lambda: (
            (_wait(transaction, head) if leaving else None) or _shrink(transaction, head, _spare(state, head, context))
        ),
    )


def plan_with_extras(transaction: Transaction, head: JobRecord, context: Context) -> PreemptionPlan | None:
    """Where the head fits once elastic attempts have given back what they were lent, and terminating ones have left.

    Where it fits without that, other steps place it: they know what is reserved there.
    """
    lent = lent_to(transaction, head, context)
    if not lent:
        return None
    room = _beside(
        transaction, head, context.leaving, lambda: _shrink(transaction, head, _last_needed(transaction, head, lent))
    )
    return room if room is not None and room.shrunk else None


def _last_needed(transaction: Transaction, head: JobRecord, lent: list[Member]) -> list[Member]:
    """As few of the last members as will do together: there may be hundreds, and most of them stay."""
    if _without(transaction, head, lent) is None:
        return []
    too_few, enough = 0, len(lent)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if _without(transaction, head, lent[-middle:]) is not None:
            enough = middle
        else:
            too_few = middle
    return lent[-enough:]


def plan_beside_terminating(
    transaction: Transaction, head: JobRecord, leaving: Mapping[str, AttemptRecord]
) -> PreemptionPlan | None:
    """Where the head fits once terminating attempts have left, with no other attempt stopped."""
    return _beside(transaction, head, leaving, lambda: _wait(transaction, head))


def _lent_claims(state: State, head: JobRecord) -> dict[int, int]:
    """Devices by node that are claimed by a job that borrows, or yields to the head, and so may lose its claim."""
    found: dict[int, int] = {}
    # A job that does not borrow yields to another queue only where the policy reclaims.
    own = head.job.queue if not state.policy.has_reclaims else None
    for claim in state.waiting_claims.values():
        may_yield = own is None or claim.job.queue == own
        if state.quotas.borrows(claim.job.queue) or (may_yield and yields(state, head, claim)):
            for booking in claim.bookings:
                found[booking.node] = found.get(booking.node, 0) | booking.devices
    return found


def _wait(transaction: Transaction, head: JobRecord) -> PreemptionPlan | None:
    seated = transaction.seat(head) if transaction.state.shortfall(head) is None else None
    return _room(seated) if seated is not None else None


def _room(seated: GangTrial) -> PreemptionPlan:
    return PreemptionPlan(placement_of(seated), tuple(seat.booking for seat in seated.seats))


def _move(transaction: Transaction, head: JobRecord, context: Context) -> PreemptionPlan | None:
    """Has running attempts go elsewhere. That frees no more than there is, and changes nothing of what queues have.

    What terminating attempts hold does not count: an attempt that moves must land at once.
    """
    state = transaction.state
    reclaims = bool(state.quotas) and state.quotas.may_reclaim(head.job.queue, head.need)
    if "resize" in state.lacks or (not state.policy.has_moves and not reclaims):
        return None
    if state.capacity.free_total < head.gpus_min or state.shortfall(head) is not None:
        return None
    return _moved(transaction, head, context, Moving(transaction, head, context))


def plan_defragmentation(transaction: Transaction, head: JobRecord, context: Context) -> PreemptionPlan | None:
    """Where the head fits once running attempts have moved, if that is worth it; whatever the policy says of moves."""
    if "resize" in transaction.state.lacks or transaction.state.shortfall(head) is not None:
        return None
    return _moved(transaction, head, context, Defragmenting(transaction, head, context))


def _moved(transaction: Transaction, head: JobRecord, context: Context, way: Moving) -> PreemptionPlan | None:
    """No job moves that does not save its work."""
    if not transaction.state.saving:
        return None
    search = VictimSearch(transaction, head, context, way)
    if not search.is_worth_while():
        return None
    mark = transaction.mark()
    seated = search.run()
    transaction.undo_to(mark)
    return replace(_room(seated), moves=way.moves) if seated is not None else None


def _preempt(transaction: Transaction, head: JobRecord, context: Context) -> PreemptionPlan | None:
    """Has attempts stopped, and elastic ones shrink as well where less is lost by that."""
    stopped = _stop(transaction, head, context)
    if not transaction.state.elastic:
        return stopped
    mixed = _shrink_and_stop(transaction, head, context)
    if mixed is None or stopped is None:
        return mixed or stopped
    if transaction.state.policy.targets is not Targets.KEEP:
        # The last in the running order goes first, whatever it loses: no other is stopped in its place.
        spares = {victim.key for victim in mixed.victims} < {victim.key for victim in stopped.victims}
        return mixed if spares else stopped
    harm = _Harm(transaction.state, (*mixed.victims, *stopped.victims), context.now)
    return mixed if harm.of(mixed) < harm.of(stopped) else stopped


class _Harm:
    """What preemptions are compared by: what their victims are charged with."""

    def __init__(self, state: State, victims: tuple[AttemptRecord, ...], now: int) -> None:
        self._state = state
        self._charge = Charge((victim.job.priority,) for victim in victims)
        self._now = now

    def of(self, room: PreemptionPlan) -> tuple[int, int]:
        """What is charged for a preemption, and how many victims it has."""
        losses = ((victim.job.priority, loss_gpu_ms(self._state, victim, self._now)) for victim in room.victims)
        return sum(self._charge.of((priority,), loss) for priority, loss in losses), len(room.victims)


def _shrink_and_stop(transaction: Transaction, head: JobRecord, context: Context) -> PreemptionPlan | None:
    """Has elastic attempts shrink, and others stopped for what lacks then; one that need not shrink for it does not."""
    spare = _spare(transaction.state, head, context)
    if not spare:
        return None
    mark = transaction.mark()
    _give_up(transaction, spare)
    shrinking = dict.fromkeys(attempt.key for attempt, _ in spare)
    found = _stop(
        transaction,
        head,
        replace(
            context,
            untouchable=Either(context.untouchable, shrinking),
            fresh=None,
            upper_bound=UpperBound(transaction.state, head, context.leaving),
        ),
    )
    transaction.undo_to(mark)
    if found is None or not found.victims:
        return None
    room = found
    for member in list(spare)[:SEATINGS_MAX]:
        fewer = [other for other in spare if other is not member]
        smaller = _with_all_gone(transaction, head, context, fewer, found.victims)
        if smaller is not None:
            spare, room = fewer, smaller
    return replace(room, victims=found.victims, shrunk=_by_attempt(spare))


def _with_all_gone(
    transaction: Transaction, head: JobRecord, context: Context, spare: list[Member], victims: tuple[AttemptRecord, ...]
) -> PreemptionPlan | None:
    """Where the head fits without some members and some victims."""

    def seat() -> PreemptionPlan | None:
        way = Stopping(transaction, head, context)
        seated = way.seat(list(victims))
        return replace(_room(seated), kept_mb=way.kept_mb(victims)) if seated is not None else None

    mark = transaction.mark()
    _give_up(transaction, spare)
    room = _beside(
        transaction,
        head,
        context.leaving,
        seat,
        _lent_claims(transaction.state, head) if transaction.state.quotas else {},
    )
    transaction.undo_to(mark)
    return room


def _stop(transaction: Transaction, head: JobRecord, context: Context) -> PreemptionPlan | None:
    """Has attempts stopped, of queues beyond their fair shares where that takes no more victims."""
    room = _stop_by(transaction, head, context, Stopping(transaction, head, context))
    if room is None or not transaction.state.quotas:
        return room
    room = _stop_further_out(transaction, head, context, room)
    if not transaction.state.policy.has_reclaims:
        return room
    fair = FairStopping(transaction, head, context)
    if fair.may_all_go(room.victims):
        return room
    fairer = _stop_by(transaction, head, context, fair)
    return fairer if fairer is not None and len(fairer.victims) <= len(room.victims) else room


def _stop_by(transaction: Transaction, head: JobRecord, context: Context, way: Stopping) -> PreemptionPlan | None:
    """Has attempts stopped, whatever their order or by it, if any at all would be stopped for the head."""
    state, search = transaction.state, VictimSearch(transaction, head, context, way)
    whatever_the_order = _may_stop_any(state, head) and search.is_worth_while()
    by_order = state.policy.targets is not Targets.KEEP
    displaces = by_order and context.is_any_behind(state.rank(head))
    own_and_others = OrderedStopping(transaction, head, context) if by_order and state.quotas else None
    if own_and_others is not None and not own_and_others.may_reclaim():
        own_and_others = None
    if not whatever_the_order and not displaces and own_and_others is None:
        return None

    def stopping() -> PreemptionPlan | None:
        seated = (search.run() if whatever_the_order else None) or (search.displace() if displaces else None)
        if seated is None and own_and_others is not None:
            return _stop_own_and_others(transaction, head, context, own_and_others)
        return _with_victims(seated, search, way)

    lent = _lent_claims(state, head) if state.quotas else {}
    return _beside(transaction, head, context.leaving, stopping, lent)


def _stop_further_out(
    transaction: Transaction, head: JobRecord, context: Context, room: PreemptionPlan
) -> PreemptionPlan:
    """Spares victims that would in turn take as much from queues further out, as far as the head can do without."""
    way = OuterStopping(transaction, head, context)
    search = VictimSearch(transaction, head, context, way)
    if not way.may_spare(room.victims) or not search.is_worth_while():
        return room

    def inwards(found: PreemptionPlan) -> list[int]:
        return sorted(map(way.nearness, found.victims), reverse=True)

    further = _beside(
        transaction,
        head,
        context.leaving,
        lambda: _with_victims(search.run(), search, way),
        _lent_claims(transaction.state, head),
    )
    return further if further is not None and inwards(further) < inwards(room) else room


def _stop_own_and_others(
    transaction: Transaction, head: JobRecord, context: Context, way: OrderedStopping
) -> PreemptionPlan | None:
    """Has jobs of the head's own queue that are behind it in the order stopped, and jobs of queues that borrow."""
    search = VictimSearch(transaction, head, context, way)
    return _with_victims(search.run(), search, way) if search.is_worth_while() else None


def _with_victims(seated: GangTrial | None, search: VictimSearch, way: Stopping) -> PreemptionPlan | None:
    """Where a search has placed the head, and the victims that are stopped for that."""
    if seated is None:
        return None
    return replace(_room(seated), victims=tuple(search.chosen), kept_mb=way.kept_mb(search.chosen))


def _may_stop_any(state: State, head: JobRecord) -> bool:
    """Whether any attempt would be stopped for a head whatever the order: by the policy, or because it borrows."""
    policy = state.policy
    if policy.targets is Targets.KEEP and (policy.has_victims or policy.has_reclaims):
        return True
    return bool(state.quotas) and any(
        state.preemptible_gpus.groups.get(inner.path)
        for borrowing in state.quotas.borrowers_for(head.job.queue, head.need)
        for inner in borrowing.within
    )


def _shrink(transaction: Transaction, head: JobRecord, spare: list[Member]) -> PreemptionPlan | None:
    """Takes members from elastic attempts, and gives back those that are not needed."""
    if not spare or _without(transaction, head, spare) is None:
        return None
    for member in list(spare)[:SEATINGS_MAX]:
        fewer = [other for other in spare if other is not member]
        if _without(transaction, head, fewer) is not None:
            spare = fewer
    room = _without(transaction, head, spare)
    assert room is not None, f"{head.job.id} fitted a moment ago"
    return replace(room, shrunk=_by_attempt(spare))


def _spare(state: State, head: JobRecord, context: Context) -> list[Member]:
    """Members that elastic attempts can do without that yield to the head."""
    excess = Excess(state, head)
    return [
        (attempt, slot)
        for attempt in state.elastic.values()
        if attempt.key not in context.untouchable
        and yields(state, head, attempt)
        and (attempt.created_ms < context.now or not state.policy.victims_vary or attempt.job.queue == head.job.queue)
        for slot in surplus(attempt)
        if excess.give(attempt.job.queue, gpu_permille_of((booking_of(attempt, slot),)))
    ]


def _by_attempt(spare: list[Member]) -> tuple[tuple[AttemptRecord, tuple[Slot, ...]], ...]:
    going: dict[str, list[Slot]] = {}
    for attempt, slot in spare:
        going.setdefault(attempt.key, []).append(slot)
    attempts = {attempt.key: attempt for attempt, _ in spare}
    return tuple((attempts[key], tuple(slots)) for key, slots in going.items())


def _without(transaction: Transaction, head: JobRecord, spare: list[Member]) -> PreemptionPlan | None:
    """Where the head fits without these members."""
    mark = transaction.mark()
    _give_up(transaction, spare)
    room = _wait(transaction, head)
    transaction.undo_to(mark)
    return room


def _give_up(transaction: Transaction, spare: list[Member]) -> None:
    """As if these members were gone."""
    for attempt, slot in spare:
        booking = booking_of(attempt, slot)
        transaction.release((booking,))
        transaction.use(attempt.job.queue, usage_of((booking,)), -1)
