"""The line where queues have quotas, and nobody leaves for another but to give back what he borrows.

Thousands of kinds wait, and few of them may have what they ask for and would find a place. So kinds that are placed
alike lie in wards, and only who may be placed is drawn from them. In the line itself stand those who are tried
whatever there is: who may have back what others borrow, who is overdue, and who was held back for a reason of its own.

Who was refused is tried again once something has grown. Why one waits that was not tried is not told anew: whoever asks
has that worked out (`present_reason`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from phalanx.engine.demand import Demand
from phalanx.engine.dormitory import Dormitory
from phalanx.engine.draft import Draft
from phalanx.engine.heads import Entry, Heads
from phalanx.engine.means import Means, covered
from phalanx.engine.quotas import EVERY, GPUS, Most, Shortfall, eased_queues
from phalanx.engine.records import JobRecord
from phalanx.engine.roll import Roll
from phalanx.engine.state import OVERDUE, State
from phalanx.engine.ward import Ward
from phalanx.engine.ward_tree import WardTree
from phalanx.engine.wards import Levels, Wards
from phalanx.placement.place import lack
from phalanx.placement.placement import Lack
from phalanx.protocol.plan import Verdict
from phalanx.protocol.reason import LACK_REASON, Reason

LIE_DOWN = (*LACK_REASON.values(), Reason.QUOTA, Reason.UNDECIDED)
"""Reasons to wait that end only once there is quota and a place."""


class QuotaLine(Roll):
    """Every class lies in the ward of what it needs, or stands in line, or both; or rests until something grows.

    In line stand the `lucky`, who may have something back, those who may have what they need of what their queues keep
    (`by_own`), and the `rare`, for whom there is no ward. All others who do are tried when their turn has come.

    The `stirred` no longer lie where they did at first. Who was refused since something grew is `in_vain`; `unlucky`
    is who has tried to have something back. Jobs are `skipped` that were refused while a later one of their class was
    let into the line.
    """

    def __init__(self, state: State, draft: Draft) -> None:
        super().__init__(state, draft, Heads(state))
        self._means = Means(state.quotas)
        self._dormitories: dict[str, Dormitory] = {}
        self._at: dict[int, Dormitory] = {}
        self._stirred: dict[int, None] = {}
        self._ward_of: list[Ward | None] = [None] * len(self._classes)
        self._wards = Wards(state, draft, WardTree(self._heads.keys, state.jobs, self._ward_of))
        self._lucky: dict[int, None] = {}
        self._unlucky: dict[int, None] = {}
        self._by_own: dict[int, None] = {}
        self._rare: dict[int, None] = {}
        self._aside: list[int] = []
        self._in_vain: dict[int, None] = {}
        self._reserved_anew = draft.reservations.changes
        self._skipped: list[JobRecord] = []
        self._placings = 0
        self._tried: dict[int, int] = {}
        self._over_limit: dict[str, list[int]] = {}
        self._over_pool: list[list[tuple[int, int]]] = [[] for _ in EVERY]
        self._gave_up = False
        self._undecided: list[int] = []
        self._lacks: dict[Demand, Lack] = {}
        state.quotas.eased.clear()
        settled = 0 if draft.fresh else self._settled_count()
        self._settled = range(settled)
        self._enrol(range(settled, len(self._classes)))

    def _enrol(self, classes: Iterable[int]) -> None:
        """Has classes stand in line, or lie down once somebody looks at their queues.

        Written out: every decision does so with every class.
        """
        every, dormitories = self._classes, self._dormitories
        may_be_overdue = self.state.waits_are_limited
        for i in classes:
            waiting = every[i]
            _, (_, queue), _, need, demand = waiting.reach or self._measure(waiting, self._record(i))
            reason = waiting.verdict
            if reason is not Reason.GPUS and reason is not Reason.QUOTA:
                if reason is Reason.UNDECIDED:
                    self._undecided.append(i)
                elif reason not in LIE_DOWN:
                    self._heads.push(self._entry(i))
                    continue
            if may_be_overdue and self._is_overdue(i):
                self._heads.push(self._entry(i))
                continue
            dormitory = dormitories.get(queue) or self._dormitory(queue)
            if demand in dormitory.wards or self._wards.ward(demand, dormitory.limited) is not None:
                dormitory.unseen.append(i)
                if need[0] < dormitory.least:
                    dormitory.least = need[0]
            else:
                self._rare[i] = None
                self._heads.push(self._entry(i))

    def _dormitory(self, queue: str) -> Dormitory:
        place, limited = self._heads.keys.place(queue), self.state.quotas.accounts[queue].limited
        found = self._dormitories[queue] = self._at[place] = Dormitory(queue, place, limited, self._wards.of(limited))
        return found

    def _lay_down(self, dormitory: Dormitory) -> None:
        """Has those of a queue lie in their wards at whom nobody has looked yet."""
        unseen, dormitory.unseen = dormitory.unseen, []
        for i in unseen:
            demand = self._demand(i)
            self._ward_of[i] = dormitory.classes[i] = dormitory.wards[demand]
            if dormitory.limited and not self._means.suffice(dormitory.queue, demand.need):
                self._rest_for_quota(i, dormitory.queue, demand)

    def _lying_in(self, place: int) -> list[Entry]:
        """Those of a queue who lie where they did at first, when somebody first looks there."""
        dormitory = self._at.get(place)
        if dormitory is None:
            return []
        if dormitory.unseen:
            self._lay_down(dormitory)
        return [self._entry(i) for i in dormitory.classes if self._ward_of[i] is not None and i not in self._stirred]

    def _lucky_in(self, place: int) -> list[Entry]:
        """Those of a queue who may have something back, when somebody first looks there."""
        dormitory = self._at.get(place)
        if dormitory is None or self._gave_up:
            return []
        dormitory.asked = True
        return self._newly_lucky(dormitory, self._reclaimable(dormitory.queue))

    def _reclaimable(self, queue: str) -> list[Most]:
        """What a queue may have back from others: no more than any one of these."""
        return [] if self._gave_up else self.state.quotas.reclaimable(queue)

    def _rest_for_quota(self, i: int, queue: str, demand: Demand) -> None:
        """Has one of a queue with limits rest until what keeps it from having what it needs has eased."""
        self._stirred[i] = None
        short = self.state.quotas.shortfall(queue, demand.need)
        if short is not None and short.by_limit:
            self._over_limit.setdefault(short.at, []).append(i)
        else:
            resource, height = self._means.lacking(queue, demand.need)
            heappush(self._over_pool[resource], (height, i))

    def __iter__(self) -> Iterator[JobRecord]:
        while (i := self._draw()) is not None or self._try_again():
            if i is None:
                continue
            self._current = i
            yield self._record(i)
            if self.draft.growths != self._growths:
                self._look_again()
            if self.draft.reservations.changes != self._reserved_anew:
                self._try_who_was_held_back()
            self._rejoin()

    def _draw(self) -> int | None:
        """The class that is next; None if nobody is who may be placed."""
        heads, wards = self._heads, self._wards
        while True:
            wards.note(self.state.touched)
            heads.tick()
            if self.draft.reclaims_left <= 0 and not self._gave_up:
                self._give_up_reclaiming()
            if self.state.quotas.eased:
                self._find_luck()
            levels = Levels(self.draft.free_soon, self._means.pool)
            if wards.open_up(levels):
                self._call_by_own(levels)
            standing = heads.best(self._lucky_in)
            lying = wards.tree.best(self._lying_in) if wards.is_any_open else None
            if standing is None and lying is None:
                return None
            lies = standing is None or (lying is not None and lying < standing)
            entry = wards.tree.pop() if lies else heads.take()
            _, _, i = entry
            if not self._has_more(i) or entry != self._entry(i):
                continue
            if self._gets_up(i) if lies else self._may_be_tried(i):
                return i
            if not lies:
                heads.drop(self._stands_in_vain)

    def _try_again(self) -> bool:
        """Has those stand in line again who were held back, or tried in vain to have something back, before others were
        placed: what these would only borrow may be theirs, and what is reserved may not be in their way any more.
        """
        if not self.state.waits_are_limited:
            return False
        self.draft.reservations.renew()
        if self.draft.reservations.changes != self._reserved_anew:
            self._try_who_was_held_back()
            return True
        before = [i for i, placings in self._tried.items() if placings < self._placings and self._has_more(i)]
        again = [i for i in before if self._is_kept_off(i) or not self._gave_up]
        for i in again:
            del self._tried[i]
            self._unlucky.pop(i, None)
            self._in_vain.pop(i, None)
            self._ward_of[i] = None
            self._heads.push(self._entry(i))
        self._aside = [i for i in self._aside if i not in again]
        return bool(again)

    def _gets_up(self, i: int) -> bool:
        """Whether one that was drawn lay in a ward, and may have what it needs; then it lies there no more."""
        ward = self._ward_of[i]
        if ward is None:
            return False
        queue = self._record(i).job.queue
        if ward.limited and not self._means.suffice(queue, ward.need):
            self._rest_for_quota(i, queue, ward.demand)
            return False
        self._ward_of[i] = None
        return True

    def _may_be_tried(self, i: int) -> bool:
        """Whether one that stood in line for some reason may still be helped; some lie in their wards as well."""
        if i in self._lucky or i in self._by_own:
            is_helped = self._is_helped(i)
            self._lie_only(i)
            if not is_helped:
                return False
            self._ward_of[i] = None
        elif i in self._rare:
            del self._rare[i]
            if not self._is_rare_luck(i, self._record(i)):
                self._aside.append(i)
                return False
        return True

    def _stands_in_vain(self, entry: Entry) -> bool:
        """Whether one that lies in its ward stands in line as well but is not helped; then it stands there no more."""
        i = entry[2]
        stands = (i in self._lucky or i in self._by_own) and self._has_more(i) and entry == self._entry(i)
        if not stands or self._is_helped(i):
            return False
        self._lie_only(i)
        return True

    def _is_helped(self, i: int) -> bool:
        """Whether one that lies in its ward may have what it needs, or have it back."""
        if self._ward_of[i] is None:
            return False
        record = self._record(i)
        return self._reclaims(i, record) or self._means.suffice(record.job.queue, record.need)

    def _lie_only(self, i: int) -> None:
        """Takes note that one does not stand in line any more as well as it lies."""
        queue, ward = self._record(i).job.queue, self._ward_of[i]
        self._lucky.pop(i, None)
        self._by_own.pop(i, None)
        self._dormitories[queue].looked = None
        if ward is not None:
            ward.standing.pop(queue, None)

    def _is_rare_luck(self, i: int, record: JobRecord) -> bool:
        """Whether one without a ward may have what it asks for, and was not refused since something grew; or have it
        back.
        """
        queue, need = record.job.queue, record.need
        if i not in self._in_vain and self.draft.free_soon >= record.gpus_min and self._means.suffice(queue, need):
            return True
        return self._reclaims(i, record)

    def _reclaims(self, i: int, record: JobRecord) -> bool:
        """Whether a class may have something back, and has not tried that in vain."""
        if self._gave_up or i in self._unlucky:
            return False
        return self._means.may_reclaim(record.job.queue, record.need)

    def _give_up_reclaiming(self) -> None:
        """Nobody has anything back any more in this decision: who stands in line for that alone is not looked at."""
        self._gave_up = True
        self._heads.take_out(self._lucky.__contains__)
        self._lucky.clear()
        for ward in self._wards:
            ward.standing.clear()
        self._wards.widen()

    def _find_luck(self) -> None:
        """Has those stand in line, too, who may have something back by now."""
        eased = eased_queues(self.state.quotas, self._dormitories)
        if self._gave_up:
            return
        self._look_at_the_rare()
        for queue in eased:
            dormitory = self._dormitories[queue]
            most = self._reclaimable(queue) if dormitory.asked else None
            if most is not None and most != dormitory.looked:
                dormitory.looked = most
                self._heads.add(self._newly_lucky(dormitory, most))

    def _newly_lucky(self, dormitory: Dormitory, any_of: list[Most]) -> list[Entry]:
        """Those of a queue who may have something back, but for those who stand in line or tried that in vain."""
        found: list[Entry] = []
        if all(max(most[GPUS], 0) < dormitory.least for most in any_of):
            return found
        if dormitory.unseen:
            self._lay_down(dormitory)
        for i in dormitory.classes:
            ward = self._ward_of[i]
            if ward is None or i in self._lucky or i in self._unlucky or i in self._by_own:
                continue
            if covered(any_of, ward.need):
                self._lucky[i] = None
                found.append(self._entry(i))
        return found

    def _call_by_own(self, levels: Levels) -> None:
        """Has those stand in line, too, who may have what they need of what their queues keep."""
        for ward, queue in self._wards.narrow(levels):
            lying = [i for i in self._seen(queue) if self._ward_of[i] is ward]
            called = [i for i in lying if i not in self._lucky and i not in self._by_own]
            if not called:
                ward.standing[queue] = None
            elif self._means.suffice(queue, ward.need):
                self._by_own.update(dict.fromkeys(called))
                self._heads.add([self._entry(i) for i in called])

    def _seen(self, queue: str) -> Iterable[int]:
        """The classes of a queue that lie in wards, or have lain there."""
        dormitory = self._dormitories.get(queue)
        if dormitory is None:
            return ()
        if dormitory.unseen:
            self._lay_down(dormitory)
        return dormitory.classes

    def _look_again(self) -> None:
        """Something has grown: who was refused, or had no quota, may be tried anew."""
        self._growths = self.draft.growths
        self._in_vain.clear()
        self._call_the_skipped()
        if self._settled:
            self._enrol_settled()
        self._wards.look_anew()
        for ward in self._wards:
            resting, ward.resting = ward.resting, []
            for i in resting:
                if self._ward_of[i] is ward:
                    self._wards.tree.push(self._entry(i))
        self._look_at_the_rare()
        self._ease_limits()

    def _enrol_settled(self) -> None:
        """Has those come in who were refused in an earlier decision: their queues may have been looked at already."""
        settled, self._settled = self._settled, range(0)
        self._enrol(settled)
        for dormitory in self._dormitories.values():
            for i in (come := dormitory.unseen):
                self._put(i)
            dormitory.unseen = []
            if come:
                self._heads.add(self._newly_lucky(dormitory, self._reclaimable(dormitory.queue)))

    def _try_who_was_held_back(self) -> None:
        """Has those stand in line again who would fit, were it not for what is reserved: that is another now."""
        self._reserved_anew = self.draft.reservations.changes
        self._call_the_skipped()
        standing = {i: None for _, _, i in self._heads}
        kept_off = [i for i in (*self._held_back, *self._in_vain) if self._has_more(i) and self._is_kept_off(i)]
        for i in dict.fromkeys(kept_off):
            if i not in standing:
                self._in_vain.pop(i, None)
                self._heads.push(self._entry(i))
        self._aside = [i for i in self._aside if i not in kept_off]

    def _is_kept_off(self, i: int) -> bool:
        """Whether a class waits for no more than what is reserved for others."""
        return i in self._held_back or self._record(i).job.id in self.draft.reservations.kept_off

    def next_of_class(self) -> None:
        """Lets the next of a class into the line; who was refused has no turn of its class any more."""
        i, at = self._current, self._next[self._current]
        super().next_of_class()
        self._skip(i, at)

    def _skip(self, i: int, since: int) -> None:
        """Takes note of those of a class whom the one who stands in line came after."""
        jobs = self._classes[i].jobs
        self._skipped += (self.state.jobs[job] for _, job in jobs[since : self._next[i]])

    def _call_the_skipped(self) -> None:
        """Has those stand in line, too, whom others of their class came after although they were refused."""
        skipped, self._skipped = self._skipped, []
        for record in skipped:
            self._stand_alone(record)

    def _look_at_the_rare(self) -> None:
        """Has those stand in line again for whom there is no ward, and who may be lucky."""
        aside = [i for i in dict.fromkeys(self._aside) if self._has_more(i)]
        lucky = {i: None for i in aside if self._is_rare_luck(i, self._record(i))}
        self._aside = [i for i in aside if i not in lucky]
        self._rare.update(lucky)
        self._heads.add([self._entry(i) for i in lucky])

    def _ease_limits(self) -> None:
        """Has those lie in their wards again who may have more by now, of queues with limits."""
        back: list[int] = []
        for path in self.state.quotas.eased:
            back += self._over_limit.pop(path, ())
        for waits_for, height in zip(self._over_pool, self._means.pool, strict=True):
            while waits_for and waits_for[0][0] <= height:
                back.append(heappop(waits_for)[1])
        for i in back:
            if self._ward_of[i] is not None:
                self._put(i)

    def _put(self, i: int) -> None:
        """Has a class lie in its ward, or stand in line if there is none or it goes before all others."""
        ward = self._ward(i)
        if ward is None:
            if not self._is_overdue(i):
                self._rare[i] = None
            self._heads.push(self._entry(i))
            return
        self._ward_of[i] = ward
        self._stirred[i] = None
        queue = self._record(i).job.queue
        if ward.limited and not self._means.suffice(queue, ward.need):
            self._rest_for_quota(i, queue, ward.demand)
        else:
            self._wards.tree.put_all(self._dormitories[queue].place, [self._entry(i)])

    def _ward(self, i: int) -> Ward | None:
        """The ward of a class; None if there is none, or it goes before all others."""
        if self._is_overdue(i):
            return None
        queue, demand = self._record(i).job.queue, self._demand(i)
        dormitory = self._dormitories.get(queue) or self._dormitory(queue)
        ward = self._wards.ward(demand, dormitory.limited)
        if ward is not None:
            dormitory.classes[i] = ward
            dormitory.least = min(dormitory.least, ward.need[0])
        return ward

    def _is_overdue(self, i: int) -> bool:
        """Whether the first of a class goes before all others, whatever their queues."""
        return self._entry(i)[0][0] == OVERDUE

    def _demand(self, i: int) -> Demand:
        waiting = self._classes[i]
        *_, demand = waiting.reach or self._measure(waiting, self._record(i))
        return demand

    def fresh(self) -> int | None:
        """All nodes count: whether one that was refused may have room now was found out for its whole ward."""
        return None

    def placed(self) -> None:
        """The job got its devices: the next of its class lies down, or stands in line as it did."""
        i = self._current
        if i >= len(self.state.classes):
            # Its class may have been told why it waits.
            self.helped(self._record(i))
        self._start(i)
        self._placings += 1
        self._ward_of[i] = None
        self._lucky.pop(i, None)
        self._by_own.pop(i, None)
        if self._has_more(i):
            self._put(i)
            if self._ward_of[i] is not None and self._reclaims(i, self._record(i)):
                self._lucky[i] = None
                self._heads.push(self._entry(i))

    def refused(self, lack: Lack, short: Shortfall | None = None) -> None:
        """The job does not fit, and so does no other of its ward, where only what is free decides that."""
        i = self._current
        self._refused[i] = lack is not Lack.NEVER
        self._tell(i, LACK_REASON[lack])
        if short is None and not self.draft.reservations.made and not self.state.cluster.maintenance:
            self._wards.close(self._demand(i))
            self._lacks[self._demand(i)] = lack
        self._rest(i)

    def over_quota(self, short: Shortfall) -> None:
        """The job may not have what it asks for."""
        self._refused[self._current] = False
        self._tell(self._current, Reason.BUDGET if short.by_budget else Reason.QUOTA)
        self._rest(self._current)

    def held_back(self, reason: Reason, spare_ms: int) -> None:
        """The job would fit, but not end in time for what comes after it; a shorter one of its class may."""
        i, at = self._current, self._next[self._current]
        if self._hold_back(i, reason, spare_ms):
            self._skip(i, at)
        else:
            self._rest(i)

    def _rest(self, i: int) -> None:
        """Has one that was tried rest until something grows; who tried to have something back does so no more."""
        record = self._record(i)
        if self._means.may_reclaim(record.job.queue, record.need):
            self._unlucky[i] = None
        if i in self._unlucky or self._is_kept_off(i):
            self._tried[i] = self._placings
        self._in_vain[i] = None
        ward = self._ward(i)
        if ward is None:
            self._aside.append(i)
        else:
            self._ward_of[i] = ward
            self._stirred[i] = None
            ward.resting.append(i)

    def _stand_alone(self, record: JobRecord) -> None:
        self._ward_of.append(None)
        super()._stand_alone(record)

    def readmit(self) -> None:
        """What was reserved is so no more: who was held back for it is tried anew, now or in an earlier decision."""
        if self._settled:
            self._enrol_settled()
        self._try_who_was_held_back()

    def reconsider(self) -> bool:
        """Whether kept promises opened devices to others since the walk ended; then who was refused tries again."""
        if not self.draft.opened:
            return False
        self._look_again()
        return True

    @property
    def nobody_waits(self) -> bool:
        """Whether nobody lacks GPUs: everybody got theirs, or may not have them, or never will."""
        return not any(self._has_more(i) and self._lacks_gpus(i) for i in range(len(self._classes)))

    def _lacks_gpus(self, i: int) -> bool:
        told = self._verdicts[i].reason if i in self._verdicts else self._classes[i].verdict
        record = self._record(i)
        short = self.state.shortfall(record)
        return told is not Reason.NEVER_FITS and (short is None or self.reason_of(record, short) is Reason.GPUS)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Why classes wait, where that was found out, and of those that have never been told."""
        for i in self._undecided:
            if i not in self._verdicts and self._has_more(i):
                self._tell(i, self._reason(i))
        return super().verdicts

    def _reason(self, i: int) -> Reason:
        """Why a class waits that was not tried, as others of its ward were."""
        record, demand = self._record(i), self._demand(i)
        short = self.state.shortfall(record)
        if short is not None and self.draft.holds.in_the_way_of(record, short):
            return Reason.RESERVED
        if short is not None and (reason := self.reason_of(record, short)) is not Reason.GPUS:
            return reason
        if demand not in self._lacks:
            self._lacks[demand] = lack(self.state.fit, record.asked)
        return LACK_REASON[self._lacks[demand]]
