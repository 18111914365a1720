"""The pending jobs of a decision, said plainly: every kind is looked at whenever the next candidate is wanted.

The next candidate is the first in the order, as queues are at that moment, of those not proven blocked:

- who is overdue or was held back for a reason of its own, until it has been tried;
- who may have back what others borrow, unless it has tried that in vain, or too many have;
- who may have what it asks for, unless it was refused since capacity last grew. It need not have the quota where jobs
  of its own queue may leave for it, where the policy has jobs of other queues leave, or where something may be reserved
  for it: by the policy, or since it is overdue.

A refusal of an earlier decision lasts until something grows, too, where the policy lets everybody pass, and who gives
way does not change by itself. Where it does not last, all who were refused try again once others were placed.
"""

from __future__ import annotations

from typing import NamedTuple

from phalanx.engine.pending.outcome import Outcome
from phalanx.engine.pending.reasons import LASTING, reason_of
from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.plan.unpreempt import unpreempt
from phalanx.engine.preempt.need import need_of_others
from phalanx.engine.state.order import whole_key
from phalanx.engine.state.records import AttemptRecord, JobRecord
from phalanx.engine.state.state import State
from phalanx.engine.state.yielding import may_yield
from phalanx.placement.cells.ask import priority_of
from phalanx.placement.place import lack
from phalanx.policy.policy import Key, Reserve, Targets
from phalanx.protocol.plan import Verdict
from phalanx.protocol.reason import LACK_REASON, Reason

LASTS_FOR_QUOTA_OR_PLACE = (*LACK_REASON.values(), Reason.QUOTA, Reason.UNDECIDED)


class PlainCandidate(NamedTuple):
    record: JobRecord
    at: int
    fresh: None = None
    may_fit: bool = True
    was_refused: bool = False
    reclaims: bool = True


class PlainCandidates:
    def __init__(self, state: State, builder: PlanBuilder) -> None:
        policy = state.policy
        keeps = policy.targets is Targets.KEEP
        passes = policy.lets_all_pass
        self.state = state
        self.builder = builder
        self.head = ""
        self.exhaustive = True
        self.lasts = (
            passes
            and policy.targets is not Targets.DRIFT
            and not policy.victims_vary
            and state.cells is None
            and not builder.extras_are_lent
        )
        self.plain = (
            passes
            and keeps
            and policy.reserve is Reserve.NOBODY
            and not policy.preempts
            and state.cells is None
            and not builder.extras_are_lent
        )
        self.by_quota = bool(state.quotas) and (
            self.plain or (self.lasts and not policy.has_reclaims and policy.reserve is Reserve.NOBODY)
        )
        self.classes = list(state.classes.values())
        self.waiting = [[job for _, job in waiting.jobs] for waiting in self.classes]
        self.straight = [
            (self.plain or self.by_quota)
            and (waiting.verdict not in LASTS_FOR_QUOTA_OR_PLACE or state.jobs[waiting.jobs[0][1]].overdue)
            for waiting in self.classes
        ]
        self.settled = [
            self.lasts
            and waiting.born <= state.clean_seq
            and waiting.verdict is not Reason.UNDECIDED
            and not builder.fresh
            for waiting in self.classes
        ]
        self.blocked: set[int] = set()
        self.passed: set[int] = set()
        self.refusals: dict[int, Reason] = {}
        self.kept_off: set[int] = set()
        self.skipped: list[JobRecord] = []
        self.reserved_anew = builder.reservations.changes
        self.in_vain: set[int] = set()
        self.growths = builder.growths
        self.current = 0
        self.seen: set[str] = set()
        self.placings = 0
        self.placed_late = False
        self.tried: dict[int, int] = {}
        self.stopped: dict[int, AttemptRecord] = {}
        self.told_now: dict[int, Verdict] = {}

    def next(self) -> PlainCandidate | None:
        while True:
            self.catch_up()
            i = self.next_in_line()
            if i is None:
                if not self.try_again():
                    return None
                continue
            self.straight[i] = False
            if i in self.stopped:
                self.waiting[i] = []
                unpreempt(self.builder, self.stopped[i])
            elif self.head and not self.state.policy.backfill(self.state.jobs[self.head], self.record(i)):
                self.exhaustive = False
                if self.state.policy.lets_none_pass:
                    return None
                self.passed.add(i)
            else:
                reclaims = not self.plain or i not in self.in_vain
                return PlainCandidate(self.record(i), i, was_refused=i in self.told_now, reclaims=reclaims)

    def catch_up(self) -> None:
        if self.builder.growths != self.growths:
            self.growths = self.builder.growths
            self.blocked.clear()
            self.settled = []
            if self.plain:
                self.call_the_skipped()
        if self.plain:
            self.try_who_was_kept_off()
        self.put_back()
        self.watch_the_stopped()

    def settle(self, candidate: PlainCandidate, outcome: Outcome) -> None:
        self.current = candidate.at
        if outcome.reason is None:
            self.placed()
        elif outcome.spare_ms is not None:
            self.held_back(outcome.reason, outcome.spare_ms)
        else:
            self.refused(outcome, outcome.reason)
        if outcome.next_too:
            self.next_of_class()

    def try_who_was_kept_off(self) -> bool:
        if self.builder.reservations.changes == self.reserved_anew:
            return False
        self.reserved_anew = self.builder.reservations.changes
        for i in self.everybody_kept_off():
            self.straight[i] = True
            self.blocked.discard(i)
        self.call_the_skipped()
        return True

    def everybody_kept_off(self) -> set[int]:
        off = self.builder.reservations.kept_off
        return self.kept_off | {i for i in self.blocked if self.waiting[i] and self.waiting[i][0] in off}

    def next_in_line(self) -> int | None:
        fit = [i for i, jobs in enumerate(self.waiting) if jobs and i not in self.passed and self.is_in_line(i)]
        return min(fit, key=self.turn) if fit else None

    def try_again(self) -> bool:
        policy = self.state.policy
        if not self.plain:
            reservations = self.builder.reservations
            skipped, self.skipped = self.skipped, []
            for record in skipped[: max(reservations.depth - len(reservations.made), 0)]:
                self.stand_alone(record)
            if skipped[: max(reservations.depth - len(reservations.made), 0)]:
                return True
            if self.lasts or (not policy.lets_all_pass and self.state.cells is None) or not self.placed_late:
                return False
            self.placed_late = False
            again = [i for i in self.blocked if self.waiting[i]]
            self.blocked.clear()
            return bool(again)
        if not self.state.waits_are_limited:
            return False
        self.builder.reservations.renew()
        if self.try_who_was_kept_off():
            return True
        before = [i for i, placings in self.tried.items() if placings < self.placings and self.waiting[i]]
        off = self.everybody_kept_off()
        again = [i for i in before if i in off or self.builder.reclaims_left > 0]
        for i in again:
            del self.tried[i]
            self.straight[i] = True
            self.in_vain.discard(i)
            self.blocked.discard(i)
        return bool(again)

    def turn(self, i: int) -> tuple[int, bool, Key, str]:
        if i in self.stopped:
            attempt = self.stopped[i]
            return 0, True, self.state.standing.key_of(attempt, self.state.now), attempt.job.id
        record = self.record(i)
        rank = -priority_of(record.job) if self.state.cells is not None else 0
        return rank, not record.overdue, whole_key(self.state, record), record.job.id

    def is_in_line(self, i: int) -> bool:
        if i in self.stopped:
            return True
        record = self.record(i)
        if i < len(self.settled) and self.settled[i]:
            return False
        if self.straight[i]:
            return True
        if self.builder.reclaims_left > 0 and i not in self.in_vain and self.may_reclaim(record):
            return True
        reserves = record.overdue and not self.plain
        return i not in self.blocked and (not self.by_quota or reserves or not self.lacks_quota(record))

    def lacks_quota(self, record: JobRecord) -> bool:
        """It has no quota, and no job of its own queue may leave for it."""
        return self.state.shortfall(record) is not None and (self.plain or not self.has_own_victims(record))

    def has_own_victims(self, record: JobRecord) -> bool:
        state = self.state
        own = [each for each in state.attempts_present() if each.job.queue == record.job.queue]
        if state.policy.targets is not Targets.KEEP:
            return any(state.order(state.jobs[each.job.id]) > state.rank(record) for each in own)
        return any(may_yield(state, record, each) for each in own)

    def may_reclaim(self, record: JobRecord) -> bool:
        quotas = self.state.quotas
        return bool(quotas) and quotas.may_reclaim(record.job.queue, need_of_others(self.state, record))

    def record(self, i: int) -> JobRecord:
        return self.state.jobs[self.waiting[i][0]]

    def put_back(self) -> None:
        for key, attempt in self.builder.withdrawn.items():
            record = self.state.jobs[attempt.job.id]
            if key not in self.seen and not record.held:
                self.stand_alone(record)
            self.seen.add(key)
        while self.builder.put_back:
            self.stand_alone(self.builder.put_back.pop())

    def watch_the_stopped(self) -> None:
        if self.state.policy.targets is Targets.KEEP or self.state.cells is not None:
            return
        for key, attempt in self.builder.stopped.items():
            if key not in self.seen:
                self.seen.add(key)
                self.stopped[len(self.waiting)] = attempt
                self.waiting.append([attempt.job.id])
                self.straight.append(False)

    def stand_alone(self, record: JobRecord) -> None:
        self.waiting.append([record.job.id])
        self.straight.append(self.plain or self.by_quota)

    def placed(self) -> None:
        job = self.waiting[self.current].pop(0)
        self.placed_late = self.placed_late or bool(self.blocked)
        self.placings += 1
        left = self.waiting[self.current]
        self.straight[self.current] = self.plain and bool(left) and self.state.jobs[left[0]].overdue
        told = self.told_now.get(self.current)
        if told is not None and told.job == job:
            del self.told_now[self.current]

    def refused(self, outcome: Outcome, reason: Reason) -> None:
        if reason is not Reason.UNDECIDED:
            self.tell(reason)
        record, short = self.record(self.current), outcome.short
        borrows = short is not None and self.state.quotas.would_borrow(short.queue, record.need)
        if outcome.blocks and not borrows and not self.head and not self.state.policy.lets_all_pass:
            self.head = record.job.id
        self.rest()

    def tell(self, reason: Reason) -> None:
        self.told_now[self.current] = Verdict(self.waiting[self.current][0], reason)

    def held_back(self, reason: Reason, spare_ms: int) -> None:
        jobs = self.waiting[self.current]
        self.tell(reason)
        for later in range(1, len(jobs)):
            if self.state.jobs[jobs[later]].estimate_ms <= spare_ms:
                self.skipped += (self.state.jobs[job] for job in jobs[0 if self.plain else 1 : later])
                del jobs[:later]
                self.straight[self.current] = self.plain
                return
        self.rest()
        self.tried[self.current] = self.placings
        self.kept_off.add(self.current)

    def next_of_class(self) -> None:
        if len(self.waiting[self.current]) > 1 and self.current in self.blocked:
            if self.plain:
                self.skipped.append(self.record(self.current))
            self.blocked.discard(self.current)
            del self.waiting[self.current][0]
            self.straight[self.current] = self.plain

    def call_the_skipped(self) -> None:
        for record in self.skipped:
            self.stand_alone(record)
        self.skipped = []

    def rest(self) -> None:
        record = self.record(self.current)
        self.blocked.add(self.current)
        if self.may_reclaim(record):
            self.in_vain.add(self.current)
        if self.current in self.in_vain or record.job.id in self.builder.reservations.kept_off:
            self.tried[self.current] = self.placings

    def readmit(self) -> None:
        self.settled = []
        for i in self.everybody_kept_off():
            self.blocked.discard(i)
            self.straight[i] = self.plain

    def reconsider(self) -> bool:
        return self.builder.opened and not self.head

    def helped(self, record: JobRecord) -> None:
        self.told_now = {
            i: verdict for i, verdict in self.told_now.items() if self.state.jobs[verdict.job].shape != record.shape
        }

    @property
    def none_waits(self) -> bool:
        return not any(jobs and self.lacks_gpus(i) for i, jobs in enumerate(self.waiting) if i not in self.stopped)

    def lacks_gpus(self, i: int) -> bool:
        known = self.classes[i].verdict if i < len(self.classes) else Reason.UNDECIDED
        told = self.told_now[i].reason if i in self.told_now else known
        if not self.plain and not self.by_quota:
            return told not in LASTING
        record = self.record(i)
        short = self.state.shortfall(record)
        waits = short is None or reason_of(self.state, record, short) is Reason.GPUS
        return waits and told is not Reason.NEVER_FITS

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Why kinds wait that were tried, or never told, where that has changed."""
        for i, waiting in enumerate(self.classes):
            tells = self.plain or self.by_quota
            if tells and waiting.verdict is Reason.UNDECIDED and self.waiting[i] and i not in self.told_now:
                self.told_now[i] = Verdict(self.waiting[i][0], self.reason(self.record(i)))
        return tuple(
            verdict
            for i, verdict in self.told_now.items()
            if i >= len(self.classes) or self.classes[i].verdict is not verdict.reason
        )

    def reason(self, record: JobRecord) -> Reason:
        short = self.state.shortfall(record)
        if short is not None and self.builder.quota_reservations.in_the_way_of(record, short):
            return Reason.RESERVED
        if short is not None and (reason := reason_of(self.state, record, short)) is not Reason.GPUS:
            return reason
        return LACK_REASON[lack(self.state.fit, record.asked)]
