"""Counterfactuals: the smallest change of each kind that would give a pending job its devices now, each really tried.

What is tried is the next decision itself, on the State with the change made and undone. Tries are bounded in number,
never in time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from typing import TypeVar

from phalanx.engine.decide.cycle import decide
from phalanx.engine.state.records import AttemptRecord, JobRecord, Phase
from phalanx.engine.state.settled import unsettled
from phalanx.engine.state.state import State
from phalanx.engine.transaction.transaction import Transaction
from phalanx.engine.why.candidates import (
    Chain,
    chains,
    dependencies,
    may_be_stopped,
    more_budget,
    put_off,
    rules_of,
    shorter_min_run,
)
from phalanx.engine.why.change import CLUSTER_CHANGES, Change, ChangeKind, Other, changed
from phalanx.engine.why.evidence import in_the_way, lenders, other, repairable
from phalanx.engine.why.explain import Next
from phalanx.engine.why.present import present_reason
from phalanx.engine.why.suppose import Supposition, copied
from phalanx.placement.gang import GangTrial
from phalanx.placement.place import ever
from phalanx.protocol.reason import Reason
from phalanx.workload.job import Job

Thing = TypeVar("Thing")

TRIALS_MAX = 200
"""Decisions tried for one job."""

LINEAR_MAX = 64
"""Changes of a kind up to which each is tried in turn; of more the boundary is searched for by halves."""

CANDIDATES_MAX = 256
"""Attempts whose end is considered, those of the lowest priority and the least to lose first."""

FEWER_MAX = 3
"""Attempts, as a multiple of those found first, among which fewer are looked for."""

ALONE_MAX = 32
"""Attempts of which each is tried alone, those with the fewest GPUs first."""

FEW_MAX = 5
"""Things up to which it is tried whether any fewer of them would do."""

ENDS_MAX = 32
"""Attempts up to which it is worth saying that they would have to be gone."""

CLASSES_MAX = 1_000
"""Classes of pending jobs up to which it is tried what would be if every job were looked at anew."""

WORK_MAX = 8_000
"""Classes of pending jobs times nodes on which something grows, in all tries together in which other jobs gain, too."""

LOOKS_AT_ALL = (*CLUSTER_CHANGES, ChangeKind.QUOTA, ChangeKind.REPAIR)

NODES_MAX = 32
"""Unhealthy nodes up to which it is found out which of them are missing."""


def changes(state: State, job: str) -> tuple[Change, ...]:
    """The smallest change of each kind after which the next decision gives a pending job its devices."""
    record = state.record(job)
    if record.attempt is not None or record.final is not None or _starts_anyway(state, job):
        return ()
    return tuple(_Search(state, record).found())


def _starts_anyway(state: State, job: str) -> bool:
    """Whether nothing is missing but a decision."""
    return unsettled(state) and job in decide(state, state.now).starts


def after_the_cause(state: State, job: str, reason: Reason) -> Next | None:
    """What a job would wait for with the given reason out of the way; None if no one thing is that reason."""
    change = _removal(state, state.record(job), reason)
    if change is None or (change.kind in LOOKS_AT_ALL and len(state.classes) > CLASSES_MAX):
        return None
    with Supposition(state) as supposition:
        supposition.impose(job, change)
        return Next(change, supposition.verdict(job).reason)


def _removal(state: State, record: JobRecord, reason: Reason) -> Change | None:
    match reason:
        case Reason.NEVER_FITS:
            return next(_fitting(state, record), None)
        case Reason.HELD:
            return Change(ChangeKind.RELEASE)
        case Reason.BEGIN_TIME:
            return Change(ChangeKind.BEGIN)
        case Reason.BACKOFF:
            return Change(ChangeKind.RETRY)
        case Reason.DEPENDENCY | Reason.DEPENDENCY_FAILED:
            return dependencies(record.job).changes[-1]
        case Reason.ARRAY_LIMIT:
            return _one_more_member(state, record.job)
        case Reason.BEHIND | Reason.RESERVED:
            return Change(ChangeKind.PASS)
        case Reason.MAINTENANCE:
            names = tuple(window.name for window in in_the_way(state, record))
            return Change(ChangeKind.MAINTENANCE, names=names) if names else None
        case Reason.QUOTA:
            return _more_quota(state, record)
        case Reason.BUDGET:
            return more_budget(state, record)
        case Reason.UNHEALTHY:
            nodes = repairable(state, record)
            return _repair(list(nodes)) if nodes else None
        case Reason.AMOUNT:
            return Change(ChangeKind.AMOUNTS)
        case Reason.TOPOLOGY:
            return Change(ChangeKind.TOPOLOGY, names=("",), names_was=rules_of(record.job))
    return None


def _more_quota(state: State, record: JobRecord) -> Change | None:
    """What would have to be otherwise of the quota that a job is short of. That is of the limits that it exceeds, of
    what other queues are guaranteed and do not use, or of what the policy lets its queue have, where that bounds also
    jobs that may be stopped.
    """
    short, queue = state.shortfall(record), record.job.queue
    if short is None or short.by_budget:
        return None
    if short.by_limit and not short.at:
        for change in may_be_stopped(record.job).changes:
            with Supposition(state) as supposition:
                supposition.impose(record.job.id, change)
                then = state.shortfall(record)
            if then is None or then.at or not then.by_limit:
                return change
        return Change(ChangeKind.QUOTA, names=(queue,))
    if short.by_limit:
        return Change(ChangeKind.LIMIT, names=tuple(state.quotas.limits_exceeded(queue, record.need)))
    names = lenders(state, queue, short.resource)
    return Change(ChangeKind.GUARANTEE, names=names) if names else None


def _fitting(state: State, record: JobRecord) -> Iterator[Change]:
    """The smallest change of each kind with which a job that never fits could be held, if all were idle."""

    def fits(change: Change) -> bool:
        return ever(state.fit, changed(record.job, change))

    for chain in chains(state, record):
        tried = chain.changes
        if not fits(tried[-1]):
            continue
        if chain.ordered:
            at = bisect_left(tried, True, key=fits)
        else:
            at = next(place for place, change in enumerate(tried) if fits(change))
        yield chain.smallest(at, fits)


def _one_more_member(state: State, job: Job) -> Change:
    active = state.array_active.get(job.array_of, 0)
    at_a_time = job.array.parallel_max if job.array is not None else 0
    return Change(ChangeKind.ARRAY_LIMIT, active + 1, at_a_time)


class _Search:
    """Tries changes on one job."""

    def __init__(self, state: State, record: JobRecord) -> None:
        self.state = state
        self.record = record
        self.job = record.job.id
        self._trials = self._work = 0
        observes = state.policy.observes_events
        self._memory = copied(state.memory) if observes else None
        # Where no attempt is preempted and gangs are placed as they were asked for, a job without a place gets none.
        self._needs_a_seat = not state.makes_room and not state.policy.shapes_gangs

    def found(self) -> Iterator[Change]:
        """What would help, in the order of the kinds."""
        record, reason = self.record, present_reason(self.state, self.job)
        if record.parked is not None:
            chain = self._of_the_obstacle(record.parked)
            yield from self._smallest(chain)
            return
        if reason is Reason.QUOTA:
            yield from self._smallest(may_be_stopped(record.job))
        for chain in chains(self.state, record):
            yield from self._smallest(chain)
        if reason in (Reason.BEHIND, Reason.RESERVED):
            yield from self._smallest(Chain((Change(ChangeKind.PASS),)))
        if reason is Reason.MAINTENANCE and len(self.state.classes) <= CLASSES_MAX:
            yield from self._smallest(put_off(self.state, record))
        if reason is Reason.BUDGET and len(self.state.classes) <= CLASSES_MAX:
            yield from self._smallest(Chain((more_budget(self.state, record),)))
        if len(self.state.classes) <= CLASSES_MAX:
            yield from self._smallest(shorter_min_run(self.state, record))
        yield from self._ends()
        yield from self._repairs()

    def _of_the_obstacle(self, reason: Reason) -> Chain:
        match reason:
            case Reason.DEPENDENCY | Reason.DEPENDENCY_FAILED:
                return dependencies(self.record.job)
            case Reason.BACKOFF:
                return Chain(())
        change = _removal(self.state, self.record, reason)
        return Chain((change,) if change is not None else ())

    def _smallest(self, chain: Chain) -> Iterator[Change]:
        """The smallest change of a chain that helps."""
        tried = chain.changes
        if not tried or not self._starts(tried[-1]):
            return
        search = self._halved if chain.ordered and len(tried) > LINEAR_MAX else self._first
        change = chain.smallest(search(tried), self._starts)
        if not self._is_spent:
            yield change

    def _first(self, tried: tuple[Change, ...]) -> int:
        """The place of the first that helps; the last is known to."""
        return next((at for at, change in enumerate(tried[:-1]) if self._starts(change)), len(tried) - 1)

    def _halved(self, tried: tuple[Change, ...]) -> int:
        """The same where each change goes further than the one before it."""
        too_little, enough = -1, len(tried) - 1
        while enough - too_little > 1:
            middle = (too_little + enough) // 2
            if self._starts(tried[middle]):
                enough = middle
            else:
                too_little = middle
        return enough

    def _starts(self, change: Change) -> bool:
        """Whether the next decision gives the job its devices with the change made."""
        self._work += len(self.state.classes) * _grown(self.state, change)
        if self._is_spent or (self._needs_a_seat and not self._seats(change)):
            return False
        self._trials += 1
        with Supposition(self.state, self._memory) as supposition:
            supposition.impose(self.job, change)
            return self.job in decide(self.state, self.state.now).starts

    def _would_spend(self, change: Change) -> bool:
        """Whether no more could be tried after a change."""
        work = self._work + len(self.state.classes) * _grown(self.state, change)
        return self._trials + 1 >= TRIALS_MAX or work > WORK_MAX

    @property
    def _is_spent(self) -> bool:
        """Whether no more may be tried: what was found so far need not be the smallest."""
        return self._trials >= TRIALS_MAX or self._work > WORK_MAX

    def _seats(self, change: Change) -> bool:
        """Whether the changed job would find a place on what is free; True where the change is not one of the job."""
        job = changed(self.record.job, change)
        if job is self.record.job:
            return True
        with Transaction(self.state):
            transaction = GangTrial(self.state.fit, self.state.packing, job)
            seated = transaction.seat()
            transaction.undo()
            return seated

    def _ends(self) -> Iterator[Change]:
        """Attempts of at most the same priority that may be stopped: none of them is named that is not needed."""
        if self._work + len(self.state.classes) > WORK_MAX:
            return
        candidates = self._stoppable()
        sets = self._seats_without(candidates)
        if not sets:
            return
        chosen = next((each for each in sets if self._starts(_end(self.state, each))), None)
        if chosen is None:
            chosen = self._more(candidates, len(sets[0]))
        needed = self._needed(chosen, partial(_end, self.state))
        if needed and not self._is_spent:
            yield _end(self.state, self._alone(candidates, needed))

    def _alone(self, candidates: list[AttemptRecord], needed: list[AttemptRecord]) -> list[AttemptRecord]:
        """One of the candidates that would do alone, with the fewest GPUs, if that is less than what was found: as far
        as tries are left for it.
        """
        gpus = sum(each.gpus for each in needed)
        smaller = [each for each in candidates if len(needed) > 1 or each.gpus < gpus]
        for attempt in sorted(smaller, key=lambda each: each.gpus)[:ALONE_MAX]:
            change = _end(self.state, [attempt])
            if self._would_spend(change):
                break
            if self._starts(change):
                return [attempt]
        return needed

    def _seats_without(self, candidates: list[AttemptRecord]) -> list[list[AttemptRecord]]:
        """Sets of attempts without which the job would find a place, the smallest first. They are of attempts with the
        least claim to stay, and of attempts on the nodes that are nearest to being empty.
        """
        sets = [self._seat_without(candidates)]
        if len(sets[0]) > 1:
            fullest = {each.key: max(self._busy(booking.node) for booking in each.bookings) for each in candidates}
            nearest = sorted(candidates, key=lambda each: fullest[each.key])[: FEWER_MAX * len(sets[0])]
            if nearest != candidates[: len(nearest)]:
                sets.append(self._seat_without(nearest))
        sets.sort(key=lambda chosen: (len(chosen), sum(each.gpus for each in chosen)))
        return [chosen for chosen in sets if 0 < len(chosen) <= ENDS_MAX]

    def _busy(self, node: int) -> int:
        """GPUs of a node that are not free."""
        capacity = self.state.capacity
        return (capacity.all_devices[node] & ~capacity.free[node]).bit_count()

    def _more(self, candidates: list[AttemptRecord], too_few: int) -> list[AttemptRecord]:
        """Enough of the first candidates for jobs before this one and for it, too; none if all are not."""
        count = too_few
        while count < min(len(candidates), ENDS_MAX):
            count = min(2 * count, len(candidates), ENDS_MAX)
            if self._starts(_end(self.state, candidates[:count])):
                return candidates[:count]
        return []

    def _needed(self, chosen: list[Thing], change: Callable[[list[Thing]], Change]) -> list[Thing]:
        """Drops what may be left out, the last first. As far as tries are left for it, also what may be left out once
        the rest is: a job before this one may take what two leave, and not be able to take what one leaves.
        """
        needed = self._dropped(chosen, change, careful=False)
        while len(needed) < len(chosen):
            chosen = needed
            needed = self._dropped(chosen, change, careful=True)
        for count in range(1, len(needed) - 1 if len(needed) <= FEW_MAX else 0):
            for some in map(list, combinations(needed, count)):
                if self._would_spend(change(some)):
                    return needed
                if self._starts(change(some)):
                    return some
        return needed

    def _dropped(self, chosen: list[Thing], change: Callable[[list[Thing]], Change], *, careful: bool) -> list[Thing]:
        """What is left once each thing was left out that may be; if `careful`, only as long as tries are left."""
        for thing in chosen[::-1]:
            fewer = [each for each in chosen if each is not thing]
            if careful and fewer and self._would_spend(change(fewer)):
                break
            if fewer and self._starts(change(fewer)):
                chosen = fewer
        return chosen

    def _stoppable(self) -> list[AttemptRecord]:
        """Attempts that may be asked to leave: those that use quota that the job lacks first, then by least claim."""
        state, priority = self.state, self.record.job.priority
        short = state.shortfall(self.record)
        found = [
            attempt
            for attempt in state.attempts_present()
            if attempt.stoppable
            and attempt.phase in (Phase.RUNNING, Phase.STARTING)
            and attempt.key not in state.to_stop
            and attempt.job.priority <= priority
        ]
        found.sort(key=lambda each: (each.job.priority, each.lost_gpu_ms(state.now), -each.gpus, each.key))
        if short is not None and short.at:
            found.sort(key=lambda each: not f"{each.job.queue}/".startswith(f"{short.at}/"))
        return found[:CANDIDATES_MAX]

    def _seat_without(self, attempts: list[AttemptRecord]) -> list[AttemptRecord]:
        """The fewest of the first attempts without which the job would find a place; none if there is no such place."""
        with Transaction(self.state) as transaction:

            def seats(gone: list[AttemptRecord]) -> bool:
                mark = transaction.mark()
                for attempt in gone:
                    transaction.release(attempt.bookings)
                    transaction.leave_cells(attempt)
                seated = transaction.seat(self.record) is not None
                transaction.undo_to(mark)
                return seated

            if not attempts or not seats(attempts):
                return []
            too_few, enough = 0, len(attempts)
            while enough - too_few > 1:
                middle = (too_few + enough) // 2
                too_few, enough = (too_few, middle) if seats(attempts[:middle]) else (middle, enough)
            chosen = attempts[:enough]
            for attempt in chosen[::-1]:
                fewer = [each for each in chosen if each is not attempt]
                if fewer and seats(fewer):
                    chosen = fewer
            return chosen

    def _repairs(self) -> Iterator[Change]:
        """Nodes that would have to be healthy again, as few as will do."""
        nodes = list(repairable(self.state, self.record))
        if not nodes or len(nodes) > NODES_MAX or not self._starts(_repair(nodes)):
            return
        nodes = self._needed(nodes[::-1], _repair)[::-1]
        if not self._is_spent:
            yield _repair(nodes)


def _grown(state: State, change: Change) -> int:
    """Nodes on which a change leaves other jobs more than before."""
    ending = (state.jobs[each.job].attempt for each in change.ends)
    nodes = dict.fromkeys(booking.node for attempt in ending if attempt is not None for booking in attempt.bookings)
    return len(nodes) + (len(change.names) if change.kind is ChangeKind.REPAIR else 0)


def _end(state: State, attempts: list[AttemptRecord]) -> Change:
    ends: tuple[Other, ...] = tuple(other(state, attempt.job.id) for attempt in attempts)
    return Change(ChangeKind.END, ends=ends)


def _repair(nodes: list[str]) -> Change:
    return Change(ChangeKind.REPAIR, names=tuple(nodes))
