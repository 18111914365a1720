"""Making room: who must leave so that a head that does not fit can start, at the least loss of work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from phalanx.cluster.capacity import Booking
from phalanx.engine.elastic import surplus
from phalanx.engine.records import AttemptRecord, JobRecord, Phase
from phalanx.engine.state import State
from phalanx.engine.trial import Trial
from phalanx.placement.gang import GangTrial
from phalanx.placement.place import largest_task, placement_of
from phalanx.placement.placement import Placement, Slot
from phalanx.workload.job import Kind

SEATINGS_MAX = 400
"""Trial seatings spent on pruning for one head: a bound on work, counted and never timed."""

SETS_MAX = 16
"""Sets of victims tried, cheapest first, before all candidates together are."""


@dataclass(frozen=True, slots=True)
class Room:
    """Where the head goes once the victims, and those who are leaving anyway, have left."""

    placement: Placement
    bookings: tuple[Booking, ...]
    victims: tuple[AttemptRecord, ...] = ()
    shrunk: tuple[tuple[AttemptRecord, tuple[Slot, ...]], ...] = ()


def make_room(trial: Trial, head: JobRecord, leaving: Mapping[str, AttemptRecord], now: int) -> Room | None:
    """Where the head fits at the least harm: beside those who leave anyway, else by shrinking, else by stopping others.

    Of sets of victims it is the one that loses the least work, and none of them is not needed.
    """
    mark = trial.mark()
    for attempt in leaving.values():
        if _unpromised(trial.state, attempt):
            trial.release(attempt.bookings)
    room = _wait(trial, head) or _shrink(trial, head, leaving) or _preempt(trial, head, leaving, now)
    trial.undo_to(mark)
    return room


def _wait(trial: Trial, head: JobRecord) -> Room | None:
    seated = trial.seat(head)
    return _room(seated) if seated is not None else None


def _room(seated: GangTrial) -> Room:
    return Room(placement_of(seated), tuple(seat.booking for seat in seated.seats))


def _preempt(trial: Trial, head: JobRecord, leaving: Mapping[str, AttemptRecord], now: int) -> Room | None:
    search = _Search(trial, head, leaving, now)
    seated = search.run()
    return replace(_room(seated), victims=tuple(search.chosen)) if seated is not None else None


def _shrink(trial: Trial, head: JobRecord, leaving: Mapping[str, AttemptRecord]) -> Room | None:
    """Takes members from elastic attempts that the policy lets give way, and gives back those that are not needed."""
    state = trial.state
    spare = [
        (attempt, slot)
        for attempt in state.elastic.values()
        if attempt.key not in leaving and state.policy.victims(head, attempt)
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
    """Services keep their minimum, which to stop the whole attempt would take from them."""
    return attempt.job.preemptible and attempt.job.kind is not Kind.SERVICE and attempt.phase is not Phase.CLAIMED


class _Search:
    """Looks for victims where they are cheapest.

    For each domain in which the head would have to lie, the nodes that are cheapest to clear are added up; the
    cheapest sums are tried first. What fits is then pruned, so that every victim left is needed.
    """

    def __init__(self, trial: Trial, head: JobRecord, leaving: Mapping[str, AttemptRecord], now: int) -> None:
        self.trial = trial
        self.leaving = leaving
        self.state = trial.state
        self.head = head
        self.now = now
        self.chosen: list[AttemptRecord] = []
        self._seatings = 0
        self._loss: dict[str, int] = {}

    def run(self) -> GangTrial | None:
        candidates = self._candidates()
        if not candidates:
            return None
        sets = self._cheap_sets(candidates)[:SETS_MAX]
        for victims in [*sets, candidates]:
            seated = self._try(victims)
            if seated is not None:
                return self._prune(seated, victims)
        return None

    def _candidates(self) -> list[AttemptRecord]:
        """Attempts that the policy lets be stopped and that hold something the head could use, least loss first."""
        reach = self._reach()
        allowed = self.state.policy.victims
        found = [
            attempt
            for attempts in self.state.running.values()
            for attempt in attempts.values()
            if attempt.key not in self.leaving
            and allowed(self.head, attempt)
            and _may_stop(attempt)
            and any(reach >> booking.node & 1 for booking in attempt.bookings)
        ]
        for attempt in found:
            self._loss[attempt.key] = attempt.lost_gpu_ms(self.now)
        return sorted(found, key=lambda attempt: (self._loss[attempt.key], attempt.created_ms, attempt.key))

    def _reach(self) -> int:
        """Nodes the head could use."""
        reach = 0
        for task in self.head.tasks.values():
            reach |= self.state.fit.ask(task, self.head.job).eligible
        return reach & self.state.capacity.open

    def _cheap_sets(self, candidates: list[AttemptRecord]) -> list[list[AttemptRecord]]:
        """Sets of victims by what they lose, then by how many they are; one for each domain the head may lie in."""
        on_node: dict[int, list[AttemptRecord]] = {}
        for attempt in candidates:
            for node in dict.fromkeys(booking.node for booking in attempt.bookings):
                on_node.setdefault(node, []).append(attempt)
        domains: dict[int, list[int]] = {}
        of_node = self.state.topology.domain_of.get(self.head.job.gang.topology.required)
        for node in on_node:
            domains.setdefault(of_node[node] if of_node else 0, []).append(node)
        sets = [self._clear(nodes, on_node) for nodes in domains.values()]
        return sorted((found for found in sets if found), key=self._price)

    def _price(self, victims: list[AttemptRecord]) -> tuple[int, int]:
        return sum(self._loss[attempt.key] for attempt in victims), len(victims)

    def _clear(self, nodes: list[int], on_node: dict[int, list[AttemptRecord]]) -> list[AttemptRecord]:
        """Victims that clear the cheapest nodes for the head's largest role."""
        task, count = largest_task(self.head.job)
        reach = self._reach()
        offers = []
        for node in nodes:
            victims = self._clear_node(node, task.gpus, on_node[node])
            if victims is not None and reach >> node & 1:
                offers.append((*self._price(victims), node, victims))
        offers.sort(key=lambda offer: offer[:3])
        chosen: dict[str, AttemptRecord] = {}
        for _, _, _, victims in offers[:count]:
            chosen.update((attempt.key, attempt) for attempt in victims)
        return list(chosen.values())

    def _clear_node(self, node: int, gpus: int, candidates: list[AttemptRecord]) -> list[AttemptRecord] | None:
        """Victims that give one task its GPUs on a node, added by loss per GPU; what is not needed is dropped."""
        have = self.state.capacity.free[node].bit_count()
        gains = {
            attempt.key: sum(b.devices.bit_count() for b in attempt.bookings if b.node == node)
            for attempt in candidates
        }
        chosen: list[AttemptRecord] = []
        for attempt in sorted(candidates, key=lambda a: (self._loss[a.key] / max(gains[a.key], 1), -gains[a.key])):
            if have >= gpus and chosen:
                break
            chosen.append(attempt)
            have += gains[attempt.key]
        if have < gpus:
            return None
        for attempt in sorted(chosen, key=lambda a: -self._loss[a.key]):
            if have - gains[attempt.key] >= gpus and len(chosen) > 1:
                chosen.remove(attempt)
                have -= gains[attempt.key]
        return chosen

    def _try(self, victims: list[AttemptRecord]) -> GangTrial | None:
        """Seats the head with the victims gone; leaves both in place if it fits."""
        mark = self.trial.mark()
        for victim in victims:
            self.trial.release(victim.bookings)
        self._seatings += 1
        seated = self.trial.seat(self.head)
        if seated is None:
            self.trial.undo_to(mark)
        self._mark = mark
        return seated

    def _prune(self, seated: GangTrial, victims: list[AttemptRecord]) -> GangTrial:
        """Spares first whoever the seated head does not touch, then, dearest first, whoever it can do without."""
        touched: dict[int, int] = {}
        for seat in seated.seats:
            touched[seat.booking.node] = touched.get(seat.booking.node, 0) | seat.booking.devices
        needed = [v for v in victims if any(b.node in touched for b in v.bookings)]
        self.trial.undo_to(self._mark)
        best = self._try(needed)
        if best is None:
            needed = list(victims)
            best = self._try(needed)
        assert best is not None
        for victim in sorted(needed, key=lambda attempt: -self._loss[attempt.key]):
            if self._seatings >= SEATINGS_MAX:
                break
            fewer = [other for other in needed if other is not victim]
            self.trial.undo_to(self._mark)
            without = self._try(fewer)
            if without is not None:
                needed, best = fewer, without
            else:
                best = self._try(needed)
                assert best is not None
        self.chosen = needed
        return best
