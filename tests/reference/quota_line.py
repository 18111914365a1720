"""The line of queues with quotas, said plainly: everybody is looked at whenever the next is wanted.

The next is the first in the order, as queues are at that moment, of those

- who were never looked at, and are overdue or held back for a reason of their own;
- who may have back what others borrow, unless they tried that in vain, or too many did;
- who may have what they ask for, unless they were refused since something last grew.

Who waited when all were last looked at is not looked at before something has grown.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.engine.draft import Draft
from phalanx.engine.heads import whole_key
from phalanx.engine.quotas import Shortfall
from phalanx.engine.records import JobRecord
from phalanx.engine.roll import Roll
from phalanx.engine.state import State
from phalanx.placement.placement import Lack
from phalanx.policy.policy import Key
from phalanx.protocol.plan import Verdict
from phalanx.protocol.reason import LACK_REASON, Reason

LASTS_FOR_QUOTA_OR_PLACE = (*LACK_REASON.values(), Reason.QUOTA, Reason.UNDECIDED)


class PlainQuotaLine(Roll):
    def __init__(self, state: State, draft: Draft) -> None:
        self.state = state
        self.draft = draft
        self.head = ""
        self.exhaustive = True
        self.may_fit = True
        self.waiting = [[job for _, job in waiting.jobs] for waiting in state.classes.values()]
        self.straight = [
            waiting.verdict not in LASTS_FOR_QUOTA_OR_PLACE or state.jobs[waiting.jobs[0][1]].overdue
            for waiting in state.classes.values()
        ]
        self.refused_since_growth: set[int] = set()
        self.kept_off: set[int] = set()
        self.skipped: list[JobRecord] = []
        self.reserved_anew = draft.reservations.changes
        self.in_vain: set[int] = set()
        self.growths = draft.growths
        self.current = 0
        self.seen: set[str] = set()
        self.everybody = False
        self.placings = 0
        self.tried: dict[int, int] = {}
        self.settled = [
            waiting.born <= state.clean_seq and waiting.verdict is not Reason.UNDECIDED and not draft.fresh
            for waiting in state.classes.values()
        ]

    def __iter__(self) -> Iterator[JobRecord]:
        while (i := self.next_in_line()) is not None or self.try_again():
            if i is None:
                continue
            self.current = i
            self.straight[i] = False
            yield self.record(i)
            if self.draft.growths != self.growths:
                self.growths = self.draft.growths
                self.refused_since_growth.clear()
                self.settled = []
                self.call_the_skipped()
            self.try_who_was_kept_off()
            self.put_back()

    def try_who_was_kept_off(self) -> bool:
        if self.draft.reservations.changes == self.reserved_anew:
            return False
        self.reserved_anew = self.draft.reservations.changes
        for i in self.everybody_kept_off():
            self.straight[i] = True
            self.refused_since_growth.discard(i)
        self.call_the_skipped()
        return True

    def everybody_kept_off(self) -> set[int]:
        off = self.draft.reservations.kept_off
        return self.kept_off | {i for i in self.refused_since_growth if self.waiting[i] and self.waiting[i][0] in off}

    def next_in_line(self) -> int | None:
        fit = [i for i, jobs in enumerate(self.waiting) if jobs and self.is_in_line(i)]
        return min(fit, key=self.turn) if fit else None

    def try_again(self) -> bool:
        if not self.state.waits_are_limited:
            return False
        self.draft.reservations.renew()
        if self.try_who_was_kept_off():
            return True
        before = [i for i, placings in self.tried.items() if placings < self.placings and self.waiting[i]]
        off = self.everybody_kept_off()
        again = [i for i in before if i in off or self.draft.reclaims_left > 0]
        for i in again:
            del self.tried[i]
            self.straight[i] = True
            self.in_vain.discard(i)
            self.refused_since_growth.discard(i)
        return bool(again)

    def turn(self, i: int) -> tuple[bool, Key, str]:
        record = self.record(i)
        return not record.overdue, whole_key(self.state, record), record.job.id

    def is_in_line(self, i: int) -> bool:
        record = self.record(i)
        if i < len(self.settled) and self.settled[i]:
            return False
        if self.straight[i] or (self.everybody and i not in self.refused_since_growth):
            return True
        quotas = self.state.quotas
        reclaims = self.draft.reclaims_left > 0 and i not in self.in_vain
        if reclaims and quotas.may_reclaim(record.job.queue, record.need):
            return True
        return i not in self.refused_since_growth and self.state.shortfall(record) is None

    def record(self, i: int) -> JobRecord:
        return self.state.jobs[self.waiting[i][0]]

    def put_back(self) -> None:
        for key, attempt in self.draft.withdrawn.items():
            record = self.state.jobs[attempt.job.id]
            if key not in self.seen and not record.held:
                self.stand_alone(record)
            self.seen.add(key)
        while self.draft.put_back:
            self.stand_alone(self.draft.put_back.pop())

    def stand_alone(self, record: JobRecord) -> None:
        self.waiting.append([record.job.id])
        self.straight.append(True)

    def placed(self) -> None:
        del self.waiting[self.current][0]
        self.placings += 1

    def refused(self, lack: Lack, short: Shortfall | None = None) -> None:
        self.rest()

    def over_quota(self, short: Shortfall) -> None:
        self.rest()

    def held_back(self, reason: Reason, spare_ms: int) -> None:
        jobs = self.waiting[self.current]
        for later in range(1, len(jobs)):
            if self.state.jobs[jobs[later]].estimate_ms <= spare_ms:
                self.skipped += (self.state.jobs[job] for job in jobs[:later])
                del jobs[:later]
                self.straight[self.current] = True
                return
        self.rest()
        self.tried[self.current] = self.placings
        self.kept_off.add(self.current)

    def next_of_class(self) -> None:
        if len(self.waiting[self.current]) > 1:
            self.skipped.append(self.record(self.current))
            del self.waiting[self.current][0]
            self.straight[self.current] = True

    def call_the_skipped(self) -> None:
        for record in self.skipped:
            self.stand_alone(record)
        self.skipped = []

    def rest(self) -> None:
        record = self.record(self.current)
        self.refused_since_growth.add(self.current)
        if self.state.quotas.may_reclaim(record.job.queue, record.need):
            self.in_vain.add(self.current)
        if self.current in self.in_vain or record.job.id in self.draft.reservations.kept_off:
            self.tried[self.current] = self.placings

    def fresh(self) -> int | None:
        return None

    def readmit(self) -> None:
        self.everybody = True
        self.settled = []
        self.refused_since_growth -= self.everybody_kept_off()

    def reconsider(self) -> bool:
        self.refused_since_growth.clear()
        return self.draft.opened

    @property
    def nobody_waits(self) -> bool:
        return not any(self.waiting)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return ()
