"""Making room: who must leave so that a head that does not fit can start, at the least loss of work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from phalanx.cluster.bits import members
from phalanx.cluster.capacity import Booking
from phalanx.engine.elastic import surplus
from phalanx.engine.records import AttemptRecord, JobRecord, Phase
from phalanx.engine.state import State
from phalanx.engine.trial import Trial
from phalanx.placement.gang import GangTrial
from phalanx.placement.place import largest_task, placement_of
from phalanx.placement.placement import Placement, Slot

SEATINGS_MAX = 400
"""Trial seatings spent on pruning for one head: a bound on work, counted and never timed."""

NODES_FEW = 256
"""Nodes up to which all are looked at for victims at once."""

SETS_MAX = 16
"""Sets of victims tried, cheapest first."""


@dataclass(frozen=True, slots=True)
class Room:
    """Where the head goes once the victims, and those who are leaving anyway, have left."""

    placement: Placement
    bookings: tuple[Booking, ...]
    victims: tuple[AttemptRecord, ...] = ()
    shrunk: tuple[tuple[AttemptRecord, tuple[Slot, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """What is known when room is made: who leaves anyway, where something grew since the head was last refused, when.

    `fresh` is None for a head that was never refused: then every node is looked at.
    """

    leaving: Mapping[str, AttemptRecord]
    fresh: int | None
    now: int


def make_room(trial: Trial, head: JobRecord, context: Context) -> Room | None:
    """Where the head fits at the least harm: beside those who leave anyway, else by shrinking, else by stopping others.

    Of sets of victims it is the one that loses the least work, and none of them is not needed.
    """
    mark = trial.mark()
    for attempt in context.leaving.values():
        if _unpromised(trial.state, attempt):
            trial.release(attempt.bookings)
    room = _wait(trial, head) if trial.mark() > mark else None
    room = room or _shrink(trial, head, context) or _preempt(trial, head, context)
    trial.undo_to(mark)
    return room


def _wait(trial: Trial, head: JobRecord) -> Room | None:
    seated = trial.seat(head)
    return _room(seated) if seated is not None else None


def _room(seated: GangTrial) -> Room:
    return Room(placement_of(seated), tuple(seat.booking for seat in seated.seats))


def _preempt(trial: Trial, head: JobRecord, context: Context) -> Room | None:
    search = _Search(trial, head, context)
    seated = search.run()
    return replace(_room(seated), victims=tuple(search.chosen)) if seated is not None else None


def _shrink(trial: Trial, head: JobRecord, context: Context) -> Room | None:
    """Takes members from elastic attempts that the policy lets give way, and gives back those that are not needed."""
    state = trial.state
    spare = [
        (attempt, slot)
        for attempt in state.elastic.values()
        if attempt.key not in context.leaving and state.policy.victims(head, attempt)
        for slot in surplus(attempt)
    ]
    if not spare or not _fits_without(trial, head, spare):
        return None
    for member in list(spare)[:SEATINGS_MAX]:
        fewer = [other for other in spare if other is not member]
        if _fits_without(trial, head, fewer):
            spare = fewer
    mark = trial.mark()
    trial.release(_booking(state, *member) for member in spare)
    seated = trial.seat(head)
    assert seated is not None, f"{head.job.id} fitted a moment ago"
    room = _room(seated)
    trial.undo_to(mark)
    going: dict[str, list[Slot]] = {}
    for attempt, slot in spare:
        going.setdefault(attempt.key, []).append(slot)
    attempts = {attempt.key: attempt for attempt, _ in spare}
    return replace(room, shrunk=tuple((attempts[key], tuple(slots)) for key, slots in going.items()))


def _fits_without(trial: Trial, head: JobRecord, spare: list[tuple[AttemptRecord, Slot]]) -> bool:
    mark = trial.mark()
    trial.release(_booking(trial.state, *member) for member in spare)
    fits = trial.seat(head) is not None
    trial.undo_to(mark)
    return fits


def _booking(state: State, attempt: AttemptRecord, slot: Slot) -> Booking:
    return attempt.bookings[attempt.placement.slots.index(slot)]


def _unpromised(state: State, leaving: AttemptRecord) -> bool:
    """Whether nobody has been promised any of what a leaving attempt holds."""
    return all(
        not state.capacity.claimed[booking.node] & booking.devices
        and not any(state.capacity.amounts[number].claimed[booking.node] for number, _ in booking.needs)
        for booking in leaving.bookings
    )


def _may_stop(attempt: AttemptRecord) -> bool:
    """One that only has a claim holds nothing yet that it could give."""
    return attempt.stoppable and attempt.phase is not Phase.CLAIMED


class _Search:
    """Looks for victims where they are cheapest.

    For each node or domain in which the head would have to lie, the victims that clear it are added up; the cheapest
    sums are tried first. What fits is then pruned, so that every victim left is needed.
    """

    def __init__(self, trial: Trial, head: JobRecord, context: Context) -> None:
        self.trial = trial
        self.context = context
        self.state = trial.state
        self.head = head
        self.chosen: list[AttemptRecord] = []
        self._task, self._count = largest_task(head.job)
        self._one_node = head.job.gang.gpus_min <= self.state.capacity.gpus_max
        self._seatings = 0
        self._mark = 0
        self._loss: dict[str, int] = {}

    def run(self) -> GangTrial | None:
        self._groups = {
            group: attempts
            for group, attempts in self.state.runs.items()
            if attempts and self.state.policy.victims(self.head, next(iter(attempts.values())))
        }
        if not self._groups:
            return None
        up_to = max(priority for priority, _ in self._groups)
        clearable = self.state.stoppable.nodes(self.state.capacity, up_to, self._task.gpus)
        for nodes in self._samples(self._reach() & clearable):
            sets = sorted(self._sets(self._candidates(nodes)), key=self._price)[:SETS_MAX]
            for victims in sets:
                seated = self._try(victims)
                if seated is not None:
                    return self._prune(seated, victims)
        return None

    def _candidates(self, nodes: int) -> dict[int, list[AttemptRecord]]:
        """Attempts that may be stopped for the head, by node."""
        found: dict[int, list[AttemptRecord]] = {}
        for node in members(nodes):
            for attempt in self.state.on_node.get(node, {}).values():
                if attempt.group not in self._groups or not _may_stop(attempt):
                    continue
                key = attempt.key
                if key not in self.context.leaving:
                    found.setdefault(node, []).append(attempt)
                    if key not in self._loss:
                        self._loss[key] = attempt.lost_gpu_ms(self.context.now)
        return found

    def _reach(self) -> int:
        """Nodes the head could use. Was it refused before, only those that something new can make a difference on."""
        reach = 0
        for task in self.head.tasks.values():
            reach |= self.state.fit.ask(task, self.head.job).eligible
        reach &= self.state.capacity.open
        fresh = self.context.fresh
        if fresh is None:
            return reach
        if self._one_node:
            return reach & fresh
        domains = self.state.topology.domains.get(self.head.job.gang.topology.required)
        if domains is None:
            return reach
        return reach & sum(domain.nodes for domain in domains if domain.nodes & fresh)

    def _samples(self, reach: int) -> Iterator[int]:
        """Nodes to look at: in a large cluster first those of the newest victims, who have least to lose; then all."""
        if reach.bit_count() > NODES_FEW:
            yield self._of_newest(reach, max(NODES_FEW, 4 * self._count))
        if reach:
            yield reach

    def _of_newest(self, reach: int, count: int) -> int:
        """About `count` nodes of those who started last; where the head must lie in one domain, whole domains."""
        topology = self.state.topology
        required = self.head.job.gang.topology.required
        of_node = topology.domain_of.get(required)
        found = left = 0
        for group in sorted(self._groups):
            for attempt in reversed(self._groups[group].values()):
                for booking in attempt.bookings:
                    if of_node is None:
                        found |= topology.bit[booking.node]
                    else:
                        found |= topology.domains[required][of_node[booking.node]].nodes
                left += 1
                if left % 32 == 0 and (found & reach).bit_count() >= count:
                    return found & reach
        return found & reach

    def _sets(self, on_node: dict[int, list[AttemptRecord]]) -> Iterator[list[AttemptRecord]]:
        """Victims for each single node that would hold the whole head, and for each domain it may spread over."""
        offers = {}
        for node, candidates in on_node.items():
            victims = self._clear(node, self._task.gpus, candidates)
            if victims:
                offers[node] = victims
        if self._one_node:
            gpus = self.head.job.gang.gpus_min
            for node, candidates in on_node.items():
                victims = offers.get(node) if self._count == 1 else self._clear(node, gpus, candidates)
                if victims:
                    yield victims
        if self._count > 1:
            yield from self._spread(offers)

    def _spread(self, offers: dict[int, list[AttemptRecord]]) -> Iterator[list[AttemptRecord]]:
        """In each domain of the required level, the cheapest nodes to clear beside those that are clear already."""
        topology = self.state.topology
        required = self.head.job.gang.topology.required
        of_node = topology.domain_of.get(required)
        if of_node is None and required in topology.cluster.levels:
            return
        domains: dict[int, list[int]] = {}
        for node in offers:
            domains.setdefault(of_node[node] if of_node else 0, []).append(node)
        for index, nodes in domains.items():
            everybody = topology.domains[required][index].nodes if of_node else topology.everything
            lacking = self._count - self._clear_already(everybody)
            if 0 < lacking <= len(nodes):
                nodes.sort(key=lambda node: (*self._price(offers[node]), node))
                chosen = {attempt.key: attempt for node in nodes[:lacking] for attempt in offers[node]}
                yield list(chosen.values())

    def _clear_already(self, nodes: int) -> int:
        capacity = self.state.capacity
        passing = self.state.fit.passing(self.state.fit.ask(self._task, self.head.job)) & nodes
        gpus = max(self._task.gpus, 1)
        return sum((passing & having).bit_count() * (free // gpus) for free, having in enumerate(capacity.with_free))

    def _price(self, victims: list[AttemptRecord]) -> tuple[int, int]:
        return sum(self._loss[attempt.key] for attempt in victims), len(victims)

    def _clear(self, node: int, gpus: int, candidates: list[AttemptRecord]) -> list[AttemptRecord] | None:
        """Victims that give a task its GPUs on a node, added by loss per GPU; what is not needed is dropped."""
        have = self.state.capacity.free[node].bit_count()
        gains = {
            attempt.key: sum(b.devices.bit_count() for b in attempt.bookings if b.node == node)
            for attempt in candidates
        }
        if have + sum(gains.values()) < gpus:
            return None
        chosen: list[AttemptRecord] = []
        for attempt in sorted(candidates, key=lambda a: (self._loss[a.key] / max(gains[a.key], 1), -gains[a.key])):
            if have >= gpus and chosen:
                break
            chosen.append(attempt)
            have += gains[attempt.key]
        for attempt in sorted(chosen, key=lambda a: -self._loss[a.key]):
            if have - gains[attempt.key] >= gpus and len(chosen) > 1:
                chosen.remove(attempt)
                have -= gains[attempt.key]
        return chosen

    def _try(self, victims: list[AttemptRecord]) -> GangTrial | None:
        """Seats the head with the victims gone; leaves both in place if it fits."""
        self._mark = self.trial.mark()
        for victim in victims:
            self.trial.release(victim.bookings)
        self._seatings += 1
        seated = self.trial.seat(self.head)
        if seated is None:
            self.trial.undo_to(self._mark)
        return seated

    def _prune(self, seated: GangTrial, victims: list[AttemptRecord]) -> GangTrial:
        """Spares, dearest first, whoever the head can do without."""
        needed = victims
        for victim in sorted(victims, key=lambda attempt: -self._loss[attempt.key]):
            if len(needed) == 1 or self._seatings >= SEATINGS_MAX:
                break
            fewer = [other for other in needed if other is not victim]
            self.trial.undo_to(self._mark)
            without = self._try(fewer)
            if without is not None:
                needed, seated = fewer, without
            else:
                again = self._try(needed)
                assert again is not None, f"{self.head.job.id} fitted a moment ago"
                seated = again
        self.chosen = needed
        return seated
