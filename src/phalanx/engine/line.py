"""The line: admitted jobs in the order in which they claim capacity, one try for each kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phalanx.engine.cells_heads import CellHeads
from phalanx.engine.demand import Demand
from phalanx.engine.draft import Draft
from phalanx.engine.entrance import Entrance
from phalanx.engine.heads import Entry, Heads
from phalanx.engine.means import Means
from phalanx.engine.need import need_of_others
from phalanx.engine.offers import Offers
from phalanx.engine.quotas import Shortfall
from phalanx.engine.records import AttemptRecord, JobRecord, WaitingClass
from phalanx.engine.roll import LASTING, QUOTA_REASONS, Roll
from phalanx.engine.sleepers import FREE, FREE_SOON, POOL, Sleepers, Wakes
from phalanx.engine.state import State
from phalanx.placement.fit import Ask
from phalanx.placement.placement import Lack
from phalanx.policy.policy import Targets, always, never, no_bound
from phalanx.protocol.reason import LACK_REASON, Reason


class Line(Roll):
    """Walks the waiting classes by their heads.

    A class that was refused before is passed over, unless something has grown since on a node that could now take a
    task of it: it would be refused again.
    Where the policy lets not everybody pass, the first that is refused becomes the head.
    """

    def __init__(self, state: State, draft: Draft) -> None:
        super().__init__(state, draft, Heads(state) if state.cells is None else CellHeads(state))
        policy = state.policy
        self._preempts = policy.preempts
        self._keeps = policy.targets is Targets.KEEP
        self._remembers = self._is_remembering()
        self._by_quota_only = not state.quotas.budgets and policy.allows is no_bound
        self._has_quotas = bool(state.quotas)
        self._goes_by_means = self._has_quotas and self._by_quota_only
        self._passed_over: list[int] = []
        self._by_quota: dict[int, bool] = {}
        self._offers = Offers(state, draft)
        lasts = self._remembers and self._keeps and not self._has_quotas
        self._entrance = Entrance(state, draft, self._offers, self._classes) if lasts else None
        self._means = Means(state.quotas)
        classes, following, jobs = self._classes, self._next, state.jobs
        # What is kept beside does not hold the line itself, which would stay until the collector comes.
        self._sleepers = Sleepers(state.quotas, self._means, lambda i: jobs[classes[i].jobs[following[i]][1]].need)
        self._rounds: list[tuple[int, list[int] | None]] = [(0, None)]
        self._stopped: dict[int, AttemptRecord] = {}
        self._skipped: list[JobRecord] = []
        self._all = False
        self._placed_late = False
        self._placed = False
        known = 0 if draft.fresh or not self._remembers else self._settled_count()
        self._passed_over.extend(range(known))
        self._enter(range(known, len(self._classes)))

    def _is_remembering(self) -> bool:
        """Whether a refusal lasts until something grows."""
        policy = self.state.policy
        if self.state.cells is not None:
            # What grows on one node may let a virtual cell be bound to another.
            return False
        if self.draft.extras_are_lent:
            # Others give back what they were lent, wherever nothing has grown.
            return False
        return policy.backfill is always and policy.targets is not Targets.DRIFT and not policy.victims_vary

    def _enter(self, classes: Iterable[int]) -> None:
        """Lets classes into the heap, but for those that would be refused again."""
        if self._entrance is not None and (self._offers.last or not self._preempts):
            let_in, kept_out = self._entrance.sort(classes, self._all)
            self._passed_over += kept_out
            self._heads.add([self._entry(i) for i in let_in])
            return
        entries: list[Entry] = []
        for i in classes:
            if not self._known(self._classes[i]) or not self._stays_out(i):
                entries.append(self._entry(i))
        self._heads.add(entries)

    def _stays_out(self, i: int) -> bool:
        """Passes over a class that would be refused again; one that would not may be tried for its quota."""
        waiting = self._classes[i]
        record = self.state.jobs[waiting.jobs[0][1]]
        if self._has_quotas:
            if self._quota_allows(waiting, record):
                self._by_quota[i] = self._has_quota(waiting, record)
                return False
            if waiting.verdict in QUOTA_REASONS and self._keeps:
                if not self._sleeps_for_quota(i, record):
                    self._passed_over.append(i)
                return True
        if not self._is_offered_enough(waiting, record):
            if not self._falls_asleep(i, in_line=False):
                self._passed_over.append(i)
            return True
        return self._falls_asleep(i, in_line=True)

    def _quota_allows(self, waiting: WaitingClass, record: JobRecord) -> bool:
        """Whether a class that was refused may be lucky now, other than by what has grown on nodes."""
        if not self._has_quotas:
            return False
        if self._means.may_reclaim(record.job.queue, need_of_others(self.state, record)):
            return True
        return waiting.verdict in QUOTA_REASONS and self._may_have(record)

    def _has_quota(self, waiting: WaitingClass, record: JobRecord) -> bool:
        """Whether a class that was refused for its quota has some by now."""
        return waiting.verdict in QUOTA_REASONS and self._may_have(record)

    def _may_have(self, record: JobRecord) -> bool:
        """Whether a job may have what it asks for."""
        if self._goes_by_means:
            return self._means.suffice(record.job.queue, record.need)
        return self.state.shortfall(record) is None

    def __iter__(self) -> Iterator[JobRecord]:
        while self._heads or self._call_the_skipped() or self._try_again():
            _, job, self._current = self._heads.pop()
            if self._current in self._stopped:
                self.draft.spare(self._stopped[self._current])
                self._look_again()
                self._watch_the_stopped()
                continue
            waiting = self._classes[self._current]
            if self._entrance is not None and not self._all and self._entrance.turns_away(waiting):
                self._passed_over.append(self._current)
                continue
            record = self.state.jobs[job]
            self.may_fit = True
            if self._falls_asleep(self._current, in_line=False):
                self._heads.drop(lambda entry: self._falls_asleep(entry[2], in_line=True))
                continue
            if self._is_refused_again(waiting, record):
                self._passed_over.append(self._current)
                continue
            if self._offers.few_are_fresh and self._is_remembered(waiting):
                self.may_fit = self._offers.takes_a_task(waiting.asks, record, with_victims=False)
                told = self._entrance is not None and self._entrance.tells_all_of(waiting)
                if not (self.may_fit or told or self._offers.takes_a_task(waiting.asks, record, with_victims=True)):
                    self._passed_over.append(self._current)
                    continue
            if self.head and not self.state.policy.backfill(self.state.jobs[self.head], record):
                self.exhaustive = False
                if self.state.policy.backfill is never:
                    return
                continue
            yield record
            self._look_again()
            self._rejoin()
            self._watch_the_stopped()

    def _rouse_all(self) -> list[int]:
        return [self._sleepers.take(i) for i in list(self._sleepers)]

    def _try_again(self) -> bool:
        """Where a refusal does not last, who was refused tries again if others were placed since.

        Others may give way now that queues have more; and what is told of those who wait is how it is in the end.
        """
        if self.state.policy.backfill is not always and self.state.cells is None:
            return False
        if self._placed_late and not self._remembers:
            self._heads.add([self._entry(i) for i in self._refused if self._has_more(i)])
        elif self._placed and self.state.quotas:
            self._heads.ran_out()
            self._heads.add([self._entry(i) for i in self._with_quota()])
        self._placed_late = self._placed = False
        return bool(self._heads)

    def _with_quota(self) -> list[int]:
        """Classes that were refused or passed over, and have quota or may have back what others borrow by now."""
        self._passed_over += [self._sleepers.take(i) for i in self._sleepers.called(self._levels)]
        tried = dict.fromkeys((*self._refused, *self._passed_over))
        found = {
            i: self._has_quota(self._classes[i], self._record(i))
            for i in tried
            if self._has_more(i) and self._quota_allows(self._classes[i], self._record(i))
        }
        self._by_quota.update(found)
        self._passed_over = [i for i in self._passed_over if i not in found]
        return list(found)

    def _watch_the_stopped(self) -> None:
        """Who is stopped stands in line, too: when its turn comes, others may have made more room than was needed."""
        if self.state.policy.targets is Targets.KEEP or self.state.cells is not None:
            return
        for key, attempt in self.draft.stopped.items():
            if key not in self._rejoined:
                self._rejoined[key] = None
                alone = WaitingClass(self.state.seq)
                alone.add(attempt.standing or (), attempt.job.id)
                self._classes.append(alone)
                self._next.append(0)
                self._stopped[len(self._classes) - 1] = attempt
                self._heads.push(self._entry(len(self._classes) - 1))

    def fresh(self) -> int | None:
        """Nodes on which something grew since the present job's class was last refused; None if it never was."""
        waiting = self._classes[self._current]
        return self.draft.fresh if self._known(waiting) and not self._has_luck(self._current) else None

    @property
    def nobody_waits(self) -> bool:
        """Whether everybody in line got their devices, but for those who never will."""
        verdicts = (self._classes[i].verdict for i in (*self._passed_over, *self._sleepers))
        return not any(self._refused.values()) and all(verdict in LASTING for verdict in verdicts)

    def placed(self) -> None:
        """The job got its devices: the next of its class has a try."""
        self._start(self._current)
        self._placed_late = self._placed_late or bool(self._refused)
        self._placed = True
        if self._has_more(self._current):
            self._heads.push(self._entry(self._current))
        if self._entrance is not None and not self._all and self.draft.growths == self._growths:
            self._passed_over += self._entrance.thin_out(self._heads)

    def refused(self, lack: Lack, short: Shortfall | None = None) -> None:
        """The job does not fit, and so does no other of its class. Nobody is held up by one who would only borrow."""
        _, job, _ = self._entry(self._current)
        self._refused[self._current] = lack is not Lack.NEVER
        self._tell(self._current, LACK_REASON[lack])
        if not self.head and lack is not Lack.NEVER and self.state.policy.backfill is not always:
            need = self.state.jobs[job].need
            if short is None or not self.state.quotas.would_borrow(short.queue, need):
                self.head = job

    def over_quota(self, short: Shortfall) -> None:
        """The job may not have what it asks for. Nobody is held up by that: its due it has back from who grows."""
        self._refused[self._current] = False
        self._tell(self._current, Reason.BUDGET if short.by_budget else Reason.QUOTA)

    def held_back(self, reason: Reason, spare_ms: int) -> None:
        """The job would fit, but not end in time for what comes after it; a shorter one of its class may."""
        i, at = self._current, self._next[self._current]
        if self._hold_back(i, reason, spare_ms):
            self._skipped += [self.state.jobs[job] for _, job in self._classes[i].jobs[at + 1 : self._next[i]]]

    def _call_the_skipped(self) -> bool:
        """Has those stand in line whom a shorter one of their class came before, as many as may be reserved for."""
        reservations = self.draft.reservations
        skipped, self._skipped = self._skipped, []
        for record in skipped[: reservations.depth - len(reservations.made)]:
            self._stand_alone(record)
        return bool(self._heads)

    def readmit(self) -> None:
        """Lets everybody who was passed over into the line: somebody else is the first who waits now."""
        self._all = True
        for i in (*self._passed_over, *self._rouse_all()):
            self._heads.push(self._entry(i))
        self._passed_over = []

    def _known(self, waiting: WaitingClass) -> bool:
        """Whether the class was refused when all classes were last looked at."""
        return self._remembers and self._is_settled(waiting)

    def _is_remembered(self, waiting: WaitingClass) -> bool:
        """Whether the present class was refused before, and only what has grown on nodes can have changed that."""
        return not self._all and not self._has_luck(self._current) and self._known(waiting)

    def _is_refused_again(self, waiting: WaitingClass, record: JobRecord) -> bool:
        """Whether a class was refused before, and what has grown was given to others meanwhile: a quick look.

        Where the policy has somebody give way, it takes a closer one.
        """
        if self._preempts or not self._is_remembered(waiting):
            return False
        if self.draft.free_soon < record.gpus_min:
            return waiting.verdict is Reason.GPUS
        if waiting.verdict is Reason.GPUS and self._lacks_means_and_gpus(record):
            return True
        short = self.state.shortfall(record) if not self._may_have(record) else None
        if short is not None:
            return waiting.verdict is self.reason_of(record, short)
        if waiting.verdict is not Reason.GPUS:
            return False
        return not self._offers.sees_room(waiting.asks or self._asks(waiting, record))

    def _falls_asleep(self, i: int, in_line: bool) -> bool:
        """Lets a class sleep that was refused for lack of GPUs, and will be again until one of a few things happens.

        `in_line` says that it would stand in line and has not had its turn yet.
        """
        waiting = self._classes[i]
        if waiting.verdict is not Reason.GPUS or self._preempts or i in self._by_quota:
            return False
        record = self.state.jobs[waiting.jobs[0][1]]
        if self.state.capacity.free_total >= record.gpus_min <= self.draft.free_soon:
            return False
        if not self._may_grow:
            return self._is_over_for(i, record)
        wakes = self._wakes(record)
        return wakes is not None and self._sleeps(i, record, wakes, in_line)

    @property
    def _may_grow(self) -> bool:
        """Whether somebody may still make way for another in this decision, so that others find more than before."""
        return self._preempts or (self._has_quotas and self.draft.reclaims_left > 0)

    def _is_over_for(self, i: int, record: JobRecord) -> bool:
        """Passes over a class that needs more than there is, once nobody makes way any more: nothing would wake it."""
        lacks = self.draft.free_soon < record.gpus_min or self._lacks_means_and_gpus(record)
        if not lacks or self._all or not self._known(self._classes[i]):
            return False
        self._passed_over.append(i)
        return True

    def _wakes(self, record: JobRecord) -> Wakes | None:
        """What would have to rise for a job not to be refused again for lack of GPUs; None if that cannot be said.

        Until something grows there will only be fewer GPUs, and queues will only have more.
        """
        if self._lacks_means_and_gpus(record):
            return (FREE, record.gpus_min), self._pool_for(record)
        if self.draft.free_soon < record.gpus_min:
            return ((FREE_SOON, record.gpus_min),)
        return None

    def _lacks_means_and_gpus(self, record: JobRecord) -> bool:
        """Whether a job may not have what it asks for, and it is GPUs that it lacks, until something grows."""
        if self.state.capacity.free_total >= record.gpus_min or not self._goes_by_means:
            return False
        # Once a limit is reached, it is that which it waits for.
        return not self.state.quotas.accounts[record.job.queue].limited and not self._may_have(record)

    def _sleeps_for_quota(self, i: int, record: JobRecord) -> bool:
        """Lets a class sleep that was refused for its quota and has none now."""
        return self._by_quota_only and self._sleeps(i, record, (self._pool_for(record),), in_line=False)

    def _pool_for(self, record: JobRecord) -> tuple[int, int]:
        resource, height = self._means.lacking(record.job.queue, record.need)
        return POOL + resource, height

    def _sleeps(self, i: int, record: JobRecord, wakes: Wakes, in_line: bool) -> bool:
        """Lets a class sleep, but not one that may have luck, nor one of which nothing is known."""
        waiting = self._classes[i]
        if self._all or i in self._by_quota or not self._known(waiting):
            return False
        if self._quota_allows(waiting, record):
            return False
        self._sleepers.put(i, record, wakes, self._heads.clock, in_line)
        self._heads.watch(record.job.queue)
        return True

    @property
    def _levels(self) -> tuple[int, ...]:
        return self.draft.free_soon, self.state.capacity.free_total, *self._means.pool

    def _has_a_turn_to_come(self, i: int) -> bool:
        """Whether a class that sleeps would stand in line and has not had its turn.

        Whenever something grows, those who have had theirs are let into the line anew, if nodes offer them enough.
        """
        bed, waiting, entry = self._sleepers.bed(i), self._classes[i], self._entry(i)
        if waiting.verdict is not Reason.GPUS:
            return False
        until = self._heads.clock
        for since, offering in reversed(self._rounds):
            begin = max(since, bed.since)
            if self._heads.had_turn(entry, begin, until):
                return False
            if bed.since >= since:
                return bed.in_line
            if offering is None or self._is_within(waiting, self._record(i), offering):
                return True
            until = since
        return bed.in_line

    def _wake(self) -> None:
        """Wakes whom what has grown may help: back into the line, or to be looked at if they have had their turn."""
        woken: dict[int, bool] = {}
        for i in self._sleepers.called(self._levels):
            has_luck = self._quota_allows(self._classes[i], self._record(i))
            if has_luck or not self._sleeps_on(i):
                woken[i] = has_luck
        offering = self._offering_anew()
        back = {i: self._goes_back(i, has_luck, offering) for i, has_luck in woken.items()}
        self._rounds.append((self._heads.clock, offering))
        for i in woken:
            self._sleepers.take(i)
        self._heads.add([self._entry(i) for i in woken if back[i]])
        self._passed_over += [i for i in woken if not back[i]]

    def _offering_anew(self) -> list[int] | None:
        """What nodes offer from now on: it is worked out when the first is let into the line that has had its turn.

        Where nobody asks for it until something grows again, that may as well be now.
        """
        for i in self._sleepers.newest_first():
            waiting, record = self._classes[i], self._record(i)
            had_turn = waiting.verdict is Reason.GPUS and not self._has_a_turn_to_come(i)
            if had_turn and not self._quota_allows(waiting, record):
                return self._offers.to(record)
        return None

    def _goes_back(self, i: int, has_luck: bool, offering: list[int] | None) -> bool:
        """Whether a class stands in line from now on: it did, or nodes offer it enough and it has no other luck."""
        if offering is not None and not has_luck and self._is_within(self._classes[i], self._record(i), offering):
            return True
        return self._has_a_turn_to_come(i)

    def _sleeps_on(self, i: int) -> bool:
        """Whether a class without luck would be refused again nevertheless: then it sleeps on, until other things
        happen.
        """
        waiting, record = self._classes[i], self._record(i)
        wakes = self._wakes(record) if waiting.verdict is Reason.GPUS else (self._pool_for(record),)
        if wakes is None:
            return False
        self._sleepers.wait_for(i, wakes)
        return True

    def _asks(self, waiting: WaitingClass, record: JobRecord) -> tuple[Ask, ...]:
        self._measure(waiting, record)
        return waiting.asks

    def _is_offered_enough(self, waiting: WaitingClass, record: JobRecord) -> bool:
        """Whether a node on which something grew may have the GPUs of the smallest task of a class."""
        return self._is_within(waiting, record, self._offers.to(record))

    def _offers_to(self, demand: Demand, offering: list[int]) -> bool:
        return bool(demand.reach & offering[min(demand.least, self._offers.gpus_max)])

    def _is_within(self, waiting: WaitingClass, record: JobRecord, offering: list[int]) -> bool:
        *_, demand = waiting.reach or self._measure(waiting, record)
        return self._offers_to(demand, offering)

    def _has_luck(self, i: int) -> bool:
        """Whether a class is tried for its quota: it has some now, or may have back what others borrow."""
        return i in self._by_quota and (self._by_quota[i] or self.draft.reclaims_left > 0)

    def reconsider(self) -> bool:
        """Whether kept promises opened devices to others since the walk ended; then who was refused tries again."""
        if not self.draft.opened or self.head:
            return False
        self._offers.open_again()
        again, self._passed_over = [*self._passed_over, *self._rouse_all()], []
        self._enter(again)
        for i in self._refused:
            if self._has_more(i):
                self._heads.push(self._entry(i))
        return True

    def _look_again(self) -> None:
        """Victims of the last job may have left more than it needs: who was passed over may fit there now."""
        if self.draft.growths == self._growths:
            return
        self._growths = self.draft.growths
        self._offers.look_anew()
        self._wake()
        again, self._passed_over = self._passed_over, []
        self._enter(again)
