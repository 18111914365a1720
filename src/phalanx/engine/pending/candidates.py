"""The candidates of a decision: the next is the first in order that is not proven blocked since capacity last grew.

A refusal lasts until capacity grows where that may help, also from one decision to the next, if the policy lets all
jobs pass and victims do not change by themselves. Where it does not last, all that were refused are tried again once
others were placed.
"""

from __future__ import annotations

from phalanx.engine.pending.outcome import Candidate, Outcome
from phalanx.engine.pending.queue import PendingClass
from phalanx.engine.pending.reasons import LASTING, Reasons
from phalanx.engine.pending.walk import Walk
from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.plan.unpreempt import unpreempt
from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.state import State
from phalanx.policy.policy import Targets
from phalanx.protocol.plan import Verdict
from phalanx.protocol.reason import LACK_REASON, Reason


class Candidates:
    """The pending classes of a decision, as far as it has come.

    `head` is the first job that was refused where not all may pass it, `exhaustive` whether all were looked at. Jobs
    are `_skipped` that a later one of their class came before. Of classes that were `_tried` in vain to reclaim, or
    while something was reserved, it is known how many jobs had been placed by then.
    """

    def __init__(self, state: State, builder: PlanBuilder) -> None:
        self.state = state
        self.builder = builder
        self.head = ""
        self.exhaustive = True
        self._walk = Walk(state, builder)
        self._reasons = Reasons(state, builder)
        self._plain = self._walk.rules.plain
        self._reserved = builder.reservations.changes
        self._quota_held = builder.quota_reservations.made
        self._seen: dict[str, None] = {}
        self._started: dict[str, None] = {}
        self._skipped: list[JobRecord] = []
        self._held_back: dict[PendingClass, None] = {}
        self._refused: dict[str, PendingClass] = {}
        self._tried: dict[PendingClass, int] = {}
        self._placings = 0
        self._has_blocked = self._placed_late = False

    def next(self) -> Candidate | None:
        """The next candidate; None if there is none any more."""
        policy = self.state.policy
        while True:
            self._catch_up()
            entry = self._walk.first()
            if entry is None:
                if not self._try_again():
                    return None
                continue
            _, job, pending = entry
            if job in self._started:
                self._pass_over(pending)
                self._walk.look_again(pending.queue)
                continue
            pending.queue.straight &= ~pending.bit
            if pending.attempt is not None:
                self._walk.move(pending, pending.at + 1)
                unpreempt(self.builder, pending.attempt)
            elif not self.head or policy.backfill(self.state.jobs[self.head], self.state.jobs[job]):
                return self._candidate(self.state.jobs[job], pending)
            else:
                self.exhaustive = False
                if policy.lets_none_pass:
                    return None
                pending.queue.open &= ~pending.bit
            self._walk.look_again(pending.queue)

    def _candidate(self, record: JobRecord, pending: PendingClass) -> Candidate:
        """With what is known of a class that was refused before: only where capacity has grown can it fit."""
        was_refused = self._reasons.is_told(pending)
        request = self._walk.request_of(pending) if self._walk.is_known(pending) else None
        if request is None:
            reclaims = not self._plain or not pending.queue.reclaimed & pending.bit
            return Candidate(record, pending, was_refused=was_refused, reclaims=reclaims)
        fresh, by_free = self.builder.fresh, self.state.capacity.by_free
        may_fit = False
        for ask in request.asks:
            here = ask.eligible & fresh
            may_fit = may_fit or any(here & having for _, having in by_free(0 if ask.portions else ask.gpus))
        return Candidate(record, pending, fresh, may_fit, was_refused)

    def settle(self, candidate: Candidate, outcome: Outcome) -> None:
        """Takes note of what became of a candidate."""
        pending = candidate.pending
        if outcome.reason is None:
            self._place(pending, candidate.record)
        elif outcome.spare_ms is not None:
            self._hold_back(pending, outcome.reason, outcome.spare_ms)
        else:
            self._refuse(pending, outcome, outcome.reason)
        if outcome.next_too:
            self._go_on_with_next(pending)
        self._walk.look_again(pending.queue)

    def _place(self, pending: PendingClass, record: JobRecord) -> None:
        self._reasons.placed(pending)
        if self._walk.request_of(pending) is None:
            self._reasons.helped(record)
        self._walk.move(pending, pending.at + 1)
        if pending.has_more and pending.is_late:
            self._walk.call(pending)
        self._placed_late = self._placed_late or self._has_blocked
        self._placings += 1

    def _refuse(self, pending: PendingClass, outcome: Outcome, reason: Reason) -> None:
        """The job does not fit, and so does no other of its class. A job that would only borrow blocks none."""
        if reason is not Reason.UNDECIDED:
            self._reasons.tell(pending, reason)
        record, short = self.state.jobs[pending.job], outcome.short
        borrows = short is not None and self.state.quotas.would_borrow(short.queue, record.need)
        if outcome.blocks and not borrows and not self.head and not self.state.policy.lets_all_pass:
            self.head = record.job.id
        # With reservations or maintenance a refusal is one of this job, by how long it takes.
        by_length = bool(self.builder.reservations.made or self.state.cluster.maintenance)
        request = self._walk.request_of(pending)
        if request is not None and self._plain and short is None and not by_length and reason in LACK_REASON.values():
            self._walk.full |= request.bit
        self._block(pending, record)
        self._walk.refuse(pending, short)

    def _hold_back(self, pending: PendingClass, reason: Reason, spare_ms: int) -> None:
        """The job would fit, but not end in time for what comes after it; a shorter one of its class may."""
        self._reasons.tell(pending, reason)
        waiting, at, jobs = pending.waiting, pending.at, self.state.jobs
        shorter = bool(waiting.lengths_ms) and waiting.lengths_ms[0] <= spare_ms
        for later in range(at + 1, len(waiting.jobs)) if shorter else ():
            if jobs[waiting.jobs[later][1]].estimate_ms <= spare_ms:
                since = at if self._plain else at + 1
                self._skipped += (jobs[job] for _, job in waiting.jobs[since:later])
                pending.held = at
                self._walk.move(pending, later)
                self._walk.call(pending)
                return
        self._block(pending, jobs[pending.job])
        self._tried[pending] = self._placings
        self._held_back[pending] = None
        pending.queue.reserved_from |= pending.bit

    def _go_on_with_next(self, pending: PendingClass) -> None:
        """Something may be reserved for the next of a class that was refused, too."""
        queue = pending.queue
        if self._walk.is_blocked(pending) and pending.at + 1 < len(pending.waiting.jobs):
            if self._plain:
                self._skipped.append(self.state.jobs[pending.job])
            queue.blocked &= ~pending.bit
            self._walk.move(pending, pending.at + 1)
            self._walk.call(pending)

    def _block(self, pending: PendingClass, record: JobRecord) -> None:
        queue = pending.queue
        queue.blocked |= pending.bit
        self._has_blocked = True
        self._refused[record.job.id] = pending
        if self._walk.may_reclaim(record):
            queue.reclaimed |= pending.bit
        if record.job.id in self.builder.reservations.kept_off:
            queue.reserved_from |= pending.bit
        if (queue.reclaimed | queue.reserved_from) & pending.bit:
            self._tried[pending] = self._placings

    def _catch_up(self) -> None:
        """Takes note of what the last outcome has changed."""
        builder = self.builder
        self._walk.note_usage()
        if self._walk.note_growth():
            self._has_blocked = False
            if self._plain:
                self._call_the_skipped()
        if self._plain and builder.reservations.changes != self._reserved:
            self._retry_held_back()
        if builder.quota_reservations.made is not self._quota_held:
            self._quota_held = builder.quota_reservations.made
            self._walk.expand()
        self._put_back()
        self._watch_the_stopped()

    def _retry_held_back(self) -> None:
        """Something else is reserved than before: classes are tried anew that are kept off by what is reserved."""
        self._reserved = self.builder.reservations.changes
        self._retry(self._kept_off())
        self._call_the_skipped()

    def _retry(self, classes: list[PendingClass]) -> None:
        """Has classes tried again whatever they were refused for."""
        for pending in classes:
            pending.queue.straight |= pending.bit
            pending.queue.blocked &= ~pending.bit
        self._walk.expand()

    def _kept_off(self) -> list[PendingClass]:
        """Classes that are pending for no more than what is reserved for others."""
        found = {pending: None for pending in self._held_back if pending.has_more}
        for job in self.builder.reservations.kept_off:
            pending = self._refused.get(job)
            is_next = pending is not None and pending.has_more and pending.job == job
            if pending is not None and is_next and self._walk.is_blocked(pending):
                found[pending] = None
        return list(found)

    def _call_the_skipped(self) -> None:
        """Has jobs tried, too, that others of their class came after although they were refused."""
        skipped, self._skipped = self._skipped, []
        for record in skipped:
            self._walk.stand_alone(record)

    def _put_back(self) -> None:
        """A job that lost its claim to another is pending again, at once; one that was held meanwhile is not."""
        for key, attempt in self.builder.withdrawn.items():
            if key not in self._seen:
                self._seen[key] = None
                record = self.state.jobs[attempt.job.id]
                if not record.held:
                    self._walk.stand_alone(record)
        while self.builder.put_back:
            self._walk.stand_alone(self.builder.put_back.pop())

    def _watch_the_stopped(self) -> None:
        """An attempt that is stopped has a turn, too: others may have made more room by then than was needed."""
        if self.state.policy.targets is Targets.KEEP or self.state.cells is not None:
            return
        for key, attempt in self.builder.stopped.items():
            if key not in self._seen:
                self._seen[key] = None
                self._walk.stand_alone(self.state.jobs[attempt.job.id], attempt)

    def _try_again(self) -> bool:
        """Whether more is to be tried now that there is no candidate left."""
        if self._plain:
            return self.state.waits_are_limited and self._retry_late()
        reservations = self.builder.reservations
        skipped, self._skipped = self._skipped, []
        skipped = skipped[: max(reservations.depth - len(reservations.made), 0)]
        for record in skipped:
            self._walk.stand_alone(record)
        if skipped:
            return True
        passes = self.state.policy.lets_all_pass or self.state.cells is not None
        if self._walk.rules.lasts or not passes or not self._placed_late:
            return False
        self._placed_late = self._has_blocked = False
        self._walk.unblock_all()
        return True

    def _retry_late(self) -> bool:
        """Has classes tried again that were held back, or tried in vain to reclaim, before others were placed: what
        these only borrow may be theirs, and what is reserved may not be in their way any more.
        """
        self.builder.reservations.renew()
        if self.builder.reservations.changes != self._reserved:
            self._retry_held_back()
            return True
        kept_off = dict.fromkeys(self._kept_off())
        reclaims = self.builder.reclaims_left > 0
        again = [
            pending
            for pending, placings in self._tried.items()
            if placings < self._placings and pending.has_more and (reclaims or pending in kept_off)
        ]
        for pending in again:
            del self._tried[pending]
            pending.queue.reclaimed &= ~pending.bit
        self._retry(again)
        return bool(again)

    def readmit(self) -> None:
        """What was reserved is so no more: refusals of earlier decisions do not count, nor for what is reserved."""
        for pending in self._kept_off():
            pending.queue.blocked &= ~pending.bit
            self._walk.call(pending)
        self._walk.unsettle()

    def reconsider(self) -> bool:
        """Whether promises that are kept by now have opened devices to others."""
        return self.builder.opened and not self.head

    def started(self, record: JobRecord) -> None:
        """A job has started before all candidates, and is none any more."""
        self._started[record.job.id] = None
        self._reasons.helped(record)
        for pending in self._walk:
            if pending.waiting is self.state.classes[record.shape]:
                self._pass_over(pending)
                self._walk.look_again(pending.queue)

    def _pass_over(self, pending: PendingClass) -> None:
        while pending.has_more and pending.job in self._started:
            self._walk.move(pending, pending.at + 1)

    def helped(self, record: JobRecord) -> None:
        """A job has got its devices without having been a candidate."""
        self._reasons.helped(record)

    @property
    def none_waits(self) -> bool:
        """Whether no class lacks devices: each got them, or may not have them, or never will."""
        return not self._skipped and not any(
            pending.held is not None or (pending.attempt is None and pending.has_more and self._waits(pending))
            for pending in self._walk
        )

    def _waits(self, pending: PendingClass) -> bool:
        if self._plain or self._walk.rules.by_quota:
            return self._reasons.lacks_gpus(pending)
        return self._reasons.of(pending) not in LASTING

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The pending reasons that have changed, and those of classes that had none."""
        if (self._plain or self._walk.rules.by_quota) and self._walk.undecided:
            wanted = dict.fromkeys(self._walk.undecided)
            for pending in self._walk:
                if pending.waiting in wanted and pending.has_more and not self._reasons.is_told(pending):
                    self._reasons.tell(pending, self._reasons.find(pending))
        return self._reasons.news()
