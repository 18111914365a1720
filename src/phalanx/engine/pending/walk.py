"""The walk over the queues of a decision: which classes are candidates at the moment, and which of them is first.

Every queue has masks over the requests of its classes. Its candidates are those that are pending, feasible and
affordable, or that may reclaim and have not tried it in vain; and those that are tried in any case: past their max_wait
or held back for a reason of their own. Queues are looked into in the order of the policy, as they are at the moment.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

from phalanx.engine.pending.headroom import Headroom
from phalanx.engine.pending.potential import Potential
from phalanx.engine.pending.queue import Entry, PendingClass, QueueCandidates, turn_of
from phalanx.engine.pending.queue_tree import QueueTree
from phalanx.engine.pending.rules import rules_of
from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.preempt.need import OwnVictims, need_of_others
from phalanx.engine.quota.shortfall import Shortfall
from phalanx.engine.state.order import QueueKeys
from phalanx.engine.state.records import AttemptRecord, EquivalenceClass, JobRecord
from phalanx.engine.state.requests import ALL, Needs, Request
from phalanx.engine.state.state import State
from phalanx.placement.cells.ask import priority_of
from phalanx.policy.policy import Key, Reserve
from phalanx.policy.view import Usage
from phalanx.protocol.reason import LACK_REASON, Reason

TRIED_FOR_QUOTA_OR_PLACE = (*LACK_REASON.values(), Reason.QUOTA, Reason.UNDECIDED)
"""Reasons that end only once there is quota and a place; classes with others are tried in any case."""


class Walk:
    """The queues of a decision. Requests that are `full` were refused for lack of a place, which holds for all queues.

    `undecided` are classes that were never told why they are pending. In virtual clusters higher priorities come first,
    so that no job of a plan gives way to another of it: `_ranks` are their masks.
    """

    def __init__(self, state: State, builder: PlanBuilder) -> None:
        self.state = state
        self.builder = builder
        self.rules = rules_of(state, builder)
        self.full = 0
        self._index = state.pending_classes()
        requests = self._requests = self._index.requests
        self._headroom = Headroom(state, requests)
        self._own = OwnVictims(state) if self.rules.by_quota and not self.rules.plain else None
        self._potential = Potential(state, builder, requests, self._own)
        quota_counts = bool(state.quotas) and self._own is None
        self._proofs_last = self.rules.lasts and state.policy.reserve is Reserve.NOBODY and not quota_counts
        self._keys = QueueKeys(state)
        self._tree = QueueTree(self._keys, self._first_at)
        self._queues: dict[int, QueueCandidates] = {}
        self._fresh, self._since = builder.fresh, builder.growths
        self._growths = builder.growths
        self._touched = len(builder.transaction.touched)
        self._borrowing = self._borrowers()
        self._moment = 0
        self._all = False
        self._alone_bit, self._alone = 1 << len(requests.every), 0
        self._ranks = {0: ALL}
        if state.cells is not None:
            self._ranks = dict(sorted(requests.by_priority.items(), reverse=True))
        self._rank = 0
        self._needs: dict[str, Usage] = {}
        self._needs_since = -1
        self._late: list[Entry] = []
        self._late_cursor = 0
        self.undecided: list[EquivalenceClass] = []
        self._new = self._new_classes()
        self._paths: dict[int, str] = {self._keys.place(path): path for path in self._index.queues}
        for path, classes in self._index.queues.items() if state.waits_are_limited else ():
            if classes.late:
                self._queue(self._keys.place(path))

    def __iter__(self) -> Iterator[PendingClass]:
        for place in list(self._paths):
            yield from self._queue(place).everything

    def _new_classes(self) -> dict[str, int]:
        """By queue the classes that were not yet there, or not evaluated, when all were last; they come last."""
        masks: dict[str, int] = {}
        for waiting in reversed(self.state.classes.values()):
            if waiting.born <= self.state.clean_seq and waiting.verdict is not Reason.UNDECIDED:
                break
            queue = self._index.queue_of(self.state.jobs[waiting.jobs[0][1]])
            masks[queue] = masks.get(queue, 0) | 1 << self._index.number_of(waiting)
            if waiting.verdict is Reason.UNDECIDED:
                self.undecided.append(waiting)
        return masks

    def _queue(self, place: int) -> QueueCandidates:
        """The candidates of the queue at a place, put together when it is first looked into."""
        queue = self._queues.get(place)
        if queue is None:
            path = self._paths.get(place, "")
            queue = self._queues[place] = QueueCandidates(path, place, self._index.queues.get(path))
            queue.draws_on_all = bool(self.state.quotas) and self._headroom.draws_on_all(path)
            queue.growths = -1 if self._fresh else self._since
            if self.rules.lasts and not self._all:
                queue.settled = queue.known = queue.open & ~self._new.get(path, 0)
            for pending in queue if self.rules.plain or self.rules.by_quota else ():
                reason = pending.waiting.verdict
                if pending.is_late or reason not in TRIED_FOR_QUOTA_OR_PLACE:
                    queue.straight |= pending.bit
                elif reason is Reason.GPUS:
                    queue.lacking |= pending.bit
            for entry in queue.entries if queue.late else ():
                if entry[2].bit & queue.late:
                    self._put_first(entry)
        return queue

    def _put_first(self, entry: Entry) -> None:
        """A job past its max_wait goes before all queues."""
        insort(self._late, entry, key=turn_of)
        self._late_cursor = 0

    def request_of(self, pending: PendingClass) -> Request | None:
        """The request of a class; None for one that stands alone."""
        return None if pending.bit >= self._alone_bit else self._requests.every[pending.bit.bit_length() - 1]

    def is_known(self, pending: PendingClass) -> bool:
        """Whether a class was refused when all were last evaluated, and only grown capacity can have changed that.

        Not where something was reserved then: this may have kept it off.
        """
        is_known = bool(pending.queue.known & pending.bit) and not self._all
        return is_known and not self.state.quotas and not self.state.reservations

    def is_blocked(self, pending: PendingClass) -> bool:
        """Whether a class was refused in this decision, and nothing has grown since that may help it."""
        if pending.queue.growths != self._growths:
            self._unblock(pending.queue)
        return bool(pending.queue.blocked & pending.bit)

    def first(self) -> Entry | None:
        """The first candidate at this moment."""
        self._moment += 1
        while True:
            found = self._first_late()
            if found is not None:
                return found
            place = self._tree.best()
            if place is not None:
                return self._queues[place].found
            if self._rank + 1 >= len(self._ranks):
                return None
            self._rank += 1
            self._look_at_all()

    def _look_at_all(self) -> None:
        self._moment += 1
        self._late_cursor = 0
        self._tree.forget()

    def expand(self) -> None:
        """There may be more candidates in any queue than before."""
        self._rank = 0
        self._look_at_all()

    def look_again(self, queue: QueueCandidates) -> None:
        """Something has changed of the classes of a queue."""
        self._tree.look_again(queue.place)

    def move(self, pending: PendingClass, at: int) -> None:
        """Has a class go on with another of its jobs."""
        queue = pending.queue
        queue.move(pending, at)
        if queue.late & queue.open & pending.bit:
            self._put_first((*pending.waiting.jobs[at], pending))

    def stand_alone(self, record: JobRecord, attempt: AttemptRecord | None = None) -> None:
        """Takes in a job as a class of its own, or an attempt that is stopped."""
        alone = EquivalenceClass(self.state.seq)
        state = self.state
        key = state.key(record) if attempt is None else state.standing.key_of(attempt, state.now)
        alone.add(key, record.job.id)
        path = self._index.queue_of(record)
        place = self._keys.place(path)
        self._paths.setdefault(place, path)
        pending = PendingClass(self._queue(place), self._alone_bit << self._alone, alone)
        pending.attempt = attempt
        self._alone += 1
        pending.queue.stand_alone(pending)
        if attempt is None and (self.rules.plain or self.rules.by_quota):
            # Also without quota: it is pending anew, and is told why.
            pending.queue.straight |= pending.bit
        if pending.queue.late & pending.bit:
            self._put_first((*alone.jobs[0], pending))
        if self.state.cells is not None:
            rank = priority_of(record.job)
            self._ranks = dict(sorted({**self._ranks, rank: self._ranks.get(rank, 0) | pending.bit}.items())[::-1])
        self.expand()

    def call(self, pending: PendingClass) -> None:
        """Has a class tried in any case, where it would not be."""
        if self.rules.plain:
            pending.queue.straight |= pending.bit

    def may_reclaim(self, record: JobRecord) -> bool:
        """Whether a job may reclaim what others borrow, once jobs of its own queue are preempted for it."""
        quotas = self.state.quotas
        return bool(quotas) and quotas.may_reclaim(record.job.queue, self._need_of_others(record))

    def _need_of_others(self, record: JobRecord) -> Usage:
        """What a job needs of other queues; it is the same until the plan goes on."""
        mark = self.builder.transaction.mark()
        if mark != self._needs_since:
            self._needs_since = mark
            self._needs.clear()
        need = self._needs.get(record.job.id)
        if need is None:
            own = self._own
            need = own.need_of_others(record) if own is not None else need_of_others(self.state, record)
            self._needs[record.job.id] = need
        return need

    def unsettle(self) -> None:
        """Refusals of earlier decisions do not count any more."""
        self._all = True
        for queue in self._queues.values():
            queue.settled = 0
        self.expand()

    def unblock_all(self) -> None:
        """Nor do those of this one."""
        for queue in self._queues.values():
            queue.blocked = 0
        self.expand()

    def note_usage(self) -> None:
        """Queues have got or lost something: keys change, and jobs beside a queue that borrows may reclaim."""
        log = self.builder.transaction.touched
        if len(log) == self._touched:
            return
        touched = dict.fromkeys(log[self._touched :])
        self._touched = len(log)
        self._tree.reorder(self._keys.catch_up(touched))
        accounts = self.state.quotas.accounts
        begins = False
        for queue in touched if accounts else ():
            for account in accounts[queue].trail:
                if account.borrows and account.path not in self._borrowing:
                    self._borrowing[account.path] = None
                    begins = begins or (account.above is not None and len(account.above.borrowing) <= 2)
        if begins:
            self.expand()

    def note_growth(self) -> bool:
        """Whether capacity has grown: what that may help is not blocked any more."""
        if self.builder.growths == self._growths:
            return False
        since, self._growths = self._growths, self.builder.growths
        self._potential.look_anew()
        self._borrowing = self._borrowers()
        if self.full:
            self.full &= ~self._potential.helped(self._nodes(since))
        self.expand()
        return True

    def _borrowers(self) -> dict[str, None]:
        return {path: None for path, each in self.state.quotas.accounts.items() if each.borrows}

    def _nodes(self, since: int) -> int:
        """The nodes on which capacity has grown since so many growths."""
        nodes = 0
        for each in self.builder.grown[since:]:
            nodes |= each
        return nodes

    def _first_at(self, place: int) -> tuple[Key, str] | None:
        queue = self._queues.get(place) or self._queue(place)
        # Most queues that hold others have no jobs of their own.
        found = queue.found = queue.first(self._mask(queue) & ~queue.late) if queue.open else None
        return None if found is None else turn_of(found)

    def _first_late(self) -> Entry | None:
        late = self._late
        while self._late_cursor < len(late):
            entry = late[self._late_cursor]
            pending = entry[2]
            if pending.has_more and pending.job == entry[1] and self._mask(pending.queue) & pending.bit:
                return entry
            self._late_cursor += 1
        return None

    def _mask(self, queue: QueueCandidates) -> int:
        """The candidates of a queue."""
        if queue.moment == self._moment:
            return queue.mask
        if queue.growths != self._growths:
            self._unblock(queue)
        is_open = queue.open if self.state.cells is None else queue.open & list(self._ranks.values())[self._rank]
        found = is_open & ~queue.blocked & ~queue.settled
        if found and self.rules.plain:
            # Without quotas a class that was told something else is told that it lacks GPUs. Something may be reserved
            # for one past its max_wait.
            told_else = 0 if self.rules.by_quota else ~queue.lacking
            found &= (self._requests.with_gpus(self.builder.free_soon) | told_else) & ~self.full | queue.late
        if found and self.rules.by_quota:
            affordable = self._headroom.affordable(queue)
            # Something may be reserved for a class past its max_wait, whatever quota it has.
            in_any_case = 0 if self.rules.plain else queue.late
            found &= affordable | in_any_case | self._displacing(queue, found & ~affordable)
        quiet = queue.settled if queue.quiet else 0
        found |= queue.straight & is_open & ~quiet
        found |= self._reclaiming(queue, is_open & ~queue.reclaimed & ~quiet & ~found)
        if queue.alone:
            found |= self._standing_alone(queue, is_open)
        queue.moment, queue.mask = self._moment, found
        return found

    def _reclaiming(self, queue: QueueCandidates, may: int) -> int:
        """Of some classes those that may reclaim what others borrow, while searches are left."""
        return self._reclaimable(queue, may) if self.builder.reclaims_left > 0 else 0

    def _reclaimable(self, queue: QueueCandidates, may: int) -> int:
        """Of some classes those that may reclaim what others borrow."""
        if not may or not self.state.quotas:
            return 0
        if self.rules.plain:
            return may & self._headroom.reclaimable(queue.path)
        if self._own is None:
            return self._reclaimable_one_by_one(queue, may)
        needs = self._needs_of(queue, self._own)
        found = may & ~queue.displacing & self._headroom.reclaimable(queue.path)
        may &= queue.displacing
        for most in self._headroom.most_reclaimable(queue.path) if may else ():
            found |= may & needs.within(most)
        return found

    def _reclaimable_one_by_one(self, queue: QueueCandidates, may: int) -> int:
        """Likewise, where it changes as the plan goes on what jobs of its own queue leave to a class."""
        found, most_of_each = 0, self._headroom.most_reclaimable(queue.path)
        for pending in queue if most_of_each else ():
            if pending.bit & may:
                need = self._need_of_others(self.state.jobs[pending.job])
                if any(
                    all(not asked or asked <= has for asked, has in zip(need, most, strict=True))
                    for most in most_of_each
                ):
                    found |= pending.bit
        return found

    def _needs_of(self, queue: QueueCandidates, own: OwnVictims) -> Needs:
        """What classes need of other queues for which jobs of their own may leave: the `displacing` ones."""
        if queue.needs is None:
            numbered = [(each.bit, self.state.jobs[each.job]) for each in queue if each.bit < self._alone_bit]
            needs = [(bit, own.need_of_others(record)) for bit, record in numbered if own.may_leave_for(record)]
            queue.displacing = sum(bit for bit, _ in needs)
            queue.needs = Needs(needs)
        return queue.needs

    def _displacing(self, queue: QueueCandidates, may: int) -> int:
        """Of some classes without quota those that would have it once jobs of their own queue have left."""
        if not may or self._own is None:
            return 0
        needs = self._needs_of(queue, self._own)
        may &= queue.displacing
        return may and may & needs.within(self._headroom.most(queue.path))

    def _may_displace(self, queue: QueueCandidates, record: JobRecord) -> bool:
        """Whether what a job needs beyond what all victims in its own queue leave is no more than that may have."""
        if self._own is None or not self._own.may_leave_for(record):
            return False
        most = self._headroom.most(queue.path)
        return all(not asked or asked <= has for asked, has in zip(self._need_of_others(record), most, strict=True))

    def _standing_alone(self, queue: QueueCandidates, is_open: int) -> int:
        """Classes without a number are looked at one by one."""
        found = 0
        for pending in queue.alone:
            if pending.bit & is_open and (pending.attempt is not None or self._is_candidate(queue, pending)):
                found |= pending.bit
        return found

    def _is_candidate(self, queue: QueueCandidates, pending: PendingClass) -> bool:
        record = self.state.jobs[pending.job]
        needs_quota = self.rules.by_quota and (self.rules.plain or not queue.late & pending.bit)
        needs_quota = needs_quota and self.state.shortfall(record) is not None
        needs_quota = needs_quota and not self._may_displace(queue, record)
        if not queue.blocked & pending.bit and not needs_quota:
            return True
        reclaims = self.builder.reclaims_left > 0 and not queue.reclaimed & pending.bit
        return reclaims and self.may_reclaim(record)

    def _unblock(self, queue: QueueCandidates) -> None:
        """Capacity has grown since a queue was looked at: classes that this may help are not blocked any more.

        Of a queue with quota it may be this that was released, and where something is reserved it may be this that
        keeps a class off, wherever capacity has grown. Of earlier decisions it is not known what was lacking.
        """
        nodes = self._nodes(max(queue.growths, self._since)) | (self._fresh if queue.growths < 0 else 0)
        queue.growths, queue.quiet = self._growths, False
        if not self._proofs_last:
            queue.settled = queue.blocked = 0
            return
        if self.builder.reservations.depth:
            queue.settled = 0
            queue.blocked &= ~(queue.reserved_from | self._reserving(queue))
        if self._own is not None:
            queue.settled = 0
            if queue.short and self._headroom.has_eased(queue):
                queue.blocked &= ~queue.short
                queue.short, queue.least = 0, None
        refused = queue.settled | queue.blocked
        helped = self._helped(queue, refused, nodes) if refused else 0
        queue.settled &= ~helped
        queue.blocked &= ~helped

    def _reserving(self, queue: QueueCandidates) -> int:
        """The refused classes past their max_wait for which something else may be reserved than is."""
        found = 0
        for pending in queue if queue.late & queue.blocked else ():
            if pending.bit & queue.late & queue.blocked:
                would_change = self.builder.reservations.would_change_for(self.state.jobs[pending.job])
                found |= pending.bit if would_change else 0
        return found

    def _helped(self, queue: QueueCandidates, refused: int, nodes: int) -> int:
        """The classes that nodes with freed capacity may help; those without a number always."""
        found = -self._alone_bit
        if not self.state.policy.preempts:
            return found | self._potential.helped(nodes)
        found |= self._reclaimable(queue, refused)
        for pending in queue:
            request = self.request_of(pending) if pending.bit & refused & ~found else None
            if request is not None and self._potential.helps(self.state.jobs[pending.job], request, nodes):
                found |= pending.bit
        return found

    def refuse(self, pending: PendingClass, short: Shortfall | None) -> None:
        """Takes note of what quota a class lacks that is refused."""
        queue = pending.queue
        queue.short &= ~pending.bit
        if short is not None and self._own is not None:
            queue.short |= pending.bit
            self._headroom.note_shortage(queue)
