"""Stops: running jobs that are stopped, so that a head fits where they were."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from phalanx.engine.preempt.charge import Rank
from phalanx.engine.preempt.excess import Excess
from phalanx.engine.preempt.need import need_of_others
from phalanx.engine.preempt.slack import Slack, tells_all
from phalanx.engine.preempt.way import Context
from phalanx.engine.state.records import AttemptRecord, JobRecord, Phase, PreemptionGroup, usage_of
from phalanx.engine.state.yielding import could_yield, may_yield, spares, yields
from phalanx.engine.transaction.suspension import hold_kept
from phalanx.engine.transaction.transaction import Transaction
from phalanx.engine.transaction.vacancy import to_be_had
from phalanx.placement.gang import GangTrial
from phalanx.policy.policy import Targets
from phalanx.policy.view import Usage


def may_stop(attempt: AttemptRecord) -> bool:
    """One that is being resized, or goes on after a suspension, is left alone until it is known how that came out."""
    return attempt.stoppable and attempt.phase is not Phase.RESIZING and not attempt.goes_on


class Stopping:
    """Victims are stopped: what they hold is to be had, and their queues have so much less."""

    def __init__(self, transaction: Transaction, head: JobRecord, context: Context) -> None:
        self.transaction = transaction
        self.state = transaction.state
        self.head = head
        self.context = context
        self._varies = self.state.policy.victims_vary
        self._kept_mb: dict[tuple[str, ...], dict[str, int]] = {}
        self._needed: Usage | None = None

    def groups(self) -> Iterable[PreemptionGroup]:
        """Where only quotas have jobs of other queues preempted, groups of the queues that borrow; else all."""
        state = self.state
        if not state.quotas and not self._varies:
            return self._giving_way()
        if not state.quotas:
            return state.runs
        queues = dict.fromkeys(queue for need in self._all_needs() for queue in self._queues_for(need))
        if not state.policy.has_reclaims:
            return [group for queue in queues for group in state.preemptible_gpus.groups.get(queue, ())]
        if state.policy.may_reclaim(self.head, state) or state.quotas.deserves_more(
            self.head.job.queue, self.head.need
        ):
            return state.runs
        return [group for group in state.runs if group[1] in queues]

    def _queues_for(self, need: Usage) -> Iterator[str]:
        """The head's queue, and those from which it may reclaim with so much more."""
        yield self.head.job.queue
        for borrowing in self.state.quotas.borrowers_for(self.head.job.queue, need):
            for inner in borrowing.within:
                yield inner.path

    def _giving_way(self) -> list[PreemptionGroup]:
        """Groups that yield to the head: where quotas have no say, the same for all its preemption group."""
        known, group = self.context.giving_way, self.state.preemption_group(self.head.job)
        if group not in known:
            runs = self.state.runs.items()
            known[group] = [each for each, some in runs if some and self.group_goes(next(iter(some.values())))]
        return known[group]

    def group_goes(self, attempt: AttemptRecord) -> bool:
        """As the policy and the quotas say, now or once other victims have left."""
        return could_yield(self.state, self.head, attempt, self._needs())

    def _all_needs(self) -> tuple[Usage, ...]:
        """What the head may need of other queues, in whatever way."""
        return (self._needs(),)

    def _needs(self) -> Usage:
        """What the head needs of other queues at least: of those in its own, the policy's victims go before."""
        if self._needed is None:
            by_order = self.state.policy.targets is not Targets.KEEP
            self._needed = self.head.need if by_order else need_of_others(self.state, self.head)
        return self._needed

    def goes(self, attempt: AttemptRecord) -> bool:
        """Not one that is being resized, nor, where queues decide, one of another that got its devices at this moment.

        Else a job that has just taken its queue beyond what it keeps would be stopped by one refused before it.
        """
        if attempt.key in self.context.untouchable or not may_stop(attempt) or spares(self.state, self.head, attempt):
            return False
        if not self._varies or attempt.job.queue == self.head.job.queue:
            return True
        return attempt.created_ms < self.context.now and bool(Excess(self.state, self.head).of((attempt,)))

    def may_begin(self, groups: Iterable[Mapping[str, AttemptRecord]]) -> bool:
        """Where none yields to the head as queues are now, none does after it, whatever all of them hold together."""
        if not self.state.quotas or self.state.policy.targets is not Targets.KEEP:
            return True
        yielding = (group for group in groups if may_yield(self.state, self.head, next(iter(group.values()))))
        return any(self.goes(attempt) for group in yielding for attempt in group.values())

    def rank(self, attempt: AttemptRecord) -> Rank:
        """By priority."""
        return (attempt.job.priority,)

    def seat(self, victims: list[AttemptRecord]) -> GangTrial | None:
        """Takes no queue further below its nominal quota than its smallest jobs going first would."""
        if not Excess(self.state, self.head).gives_all(victims):
            return None
        if len(self._give_up(self._nearest_first(victims))) < len(victims):
            return None
        if self.state.shortfall(self.head) is not None:
            return None
        # Where nothing but quota was short, the head need not wait until any victim has left.
        seated = self.transaction.seat(self.head) if self.state.quotas and self.context.upper_bound.fits_now() else None
        return seated or self._seat_without(victims)

    def together(self, candidates: list[AttemptRecord]) -> list[AttemptRecord]:
        """As many of the candidates, of queues as near the first first, as may go together."""
        quotas, path = self.state.quotas, self.head.job.queue
        if not quotas:
            return candidates
        mark = self.transaction.mark()
        going = self._give_up(sorted(candidates, key=lambda attempt: -quotas.nearness(path, attempt.job.queue)))
        self.transaction.undo_to(mark)
        keys = {attempt.key for attempt in going}
        return [attempt for attempt in candidates if attempt.key in keys]

    def slack_of(self, victims: list[AttemptRecord]) -> Callable[[list[AttemptRecord]], Slack] | None:
        """Where that tells all: with more of them preempted there is more room, and no less quota."""
        if not tells_all(self.state, self.head, victims):
            return None
        return lambda needed: Slack(self.state, self.head, needed)

    def _nearest_first(self, victims: list[AttemptRecord]) -> list[AttemptRecord]:
        """Victims of the head's own queue first, then those of queues that meet it further and further out.

        What the queues around the head use is less by each: only then may they have headroom. Of queues as near the
        smallest go first.
        """
        if not self.state.quotas:
            return victims
        path, nearness = self.head.job.queue, self.state.quotas.nearness
        return sorted(victims, key=lambda victim: (-nearness(path, victim.job.queue), victim.gpu_permille))

    def _give_up(self, victims: list[AttemptRecord]) -> list[AttemptRecord]:
        """Takes victims off the usage of their queues, one after the other, as far as each may go; those that may."""
        going: list[AttemptRecord] = []
        for victim in victims:
            if not self.state.quotas or self._may_go(victim):
                self.transaction.use(victim.job.queue, usage_of(victim.staying), -1)
                going.append(victim)
        return going

    def _may_go(self, victim: AttemptRecord) -> bool:
        """Whether one may be preempted, as queues are once those before it are."""
        return yields(self.state, self.head, victim)

    def _seat_without(self, victims: list[AttemptRecord]) -> GangTrial | None:
        """Places the head where the victims may be now."""
        promised: list[AttemptRecord] = []
        if any(victim.phase is Phase.CLAIMED for victim in victims):
            promised = [attempt for attempt in self.context.leaving.values() if not to_be_had(self.state, attempt)]
        for victim in victims:
            give_back = self.transaction.unclaim if victim.waits else self.transaction.release
            give_back(victim.bookings)
        # What terminating attempts hold was claimed by the victims, and is to be had now.
        for attempt in promised:
            if to_be_had(self.state, attempt):
                self.transaction.vacate(attempt.bookings)
        return self._seat_beside_kept(victims) or self.transaction.seat(self.head)

    def _seat_beside_kept(self, victims: list[AttemptRecord]) -> GangTrial | None:
        """Places the head beside what suspendable victims keep; not where that leaves too little."""
        if self.state.suspend is None:
            return None
        mark = self.transaction.mark()
        kept_mb = hold_kept(self.transaction, victims, self.context.leaving)
        seated = self.transaction.seat(self.head) if kept_mb else None
        if seated is None:
            self.transaction.undo_to(mark)
            kept_mb = {}
        self._kept_mb[_keys(victims)] = kept_mb
        return seated

    def kept_mb(self, victims: Sequence[AttemptRecord]) -> dict[str, int]:
        """The victims that are suspended instead, and the memory each keeps of its node, as the head was placed."""
        return self._kept_mb.get(_keys(victims), {})


class OrderedStopping(Stopping):
    """Likewise, and under a running order, those of the head's own queue that are behind it as well.

    Only with these gone may the head's queue have headroom for what other queues have borrowed.
    """

    def may_reclaim(self) -> bool:
        """Whether jobs of other queues may be stopped once those behind the head in its own are."""
        return self.state.quotas.may_reclaim(self.head.job.queue, self._needs())

    def group_goes(self, attempt: AttemptRecord) -> bool:
        """Of its own queue any may be behind the head."""
        return attempt.job.queue == self.head.job.queue or super().group_goes(attempt)

    def goes(self, attempt: AttemptRecord) -> bool:
        """Of its own queue those behind the head."""
        is_own = attempt.job.queue == self.head.job.queue
        return super().goes(attempt) and (not is_own or yields(self.state, self.head, attempt))

    def _needs(self) -> Usage:
        if self._needed is None:
            self._needed = need_of_others(self.state, self.head)
        return self._needed


class OuterStopping(Stopping):
    """Likewise, but as few as can be of the head's own queue, then of those that meet it furthest in, and so on.

    A victim further in would have as much back from queues further out, by the quota by which the head has it: that
    would be one more victim.
    """

    def _all_needs(self) -> tuple[Usage, ...]:
        """Also of queues of which nothing is needed where jobs of the head's own are preempted."""
        return (self._needs(), self.head.need)

    def group_goes(self, attempt: AttemptRecord) -> bool:
        """Likewise."""
        return super().group_goes(attempt) or could_yield(self.state, self.head, attempt, self.head.need)

    def rank(self, attempt: AttemptRecord) -> Rank:
        """By how near its queue is, then by priority."""
        return (self.nearness(attempt), attempt.job.priority)

    def may_spare(self, victims: Sequence[AttemptRecord]) -> bool:
        """Whether any may be preempted that is further out than some of these victims: else no others are sought."""
        nearest, runs = max(map(self.nearness, victims), default=0), self.state.runs
        if nearest <= 1:
            return False
        others = (next(iter(runs[group].values())) for group in self.groups() if runs[group])
        return any(self.nearness(other) < nearest and self.group_goes(other) for other in others)

    def nearness(self, attempt: AttemptRecord) -> int:
        """How far in the queue of an attempt meets that of the head."""
        return self.state.quotas.nearness(self.head.job.queue, attempt.job.queue)


class FairStopping(Stopping):
    """Likewise, but no other queue gives more than it has beyond its fair share, as the policy counts that.

    A queue below its fair share reclaims what it lacks of a third one: that would be one more victim.
    """

    def may_all_go(self, victims: Sequence[AttemptRecord]) -> bool:
        """Whether victims that were found otherwise are such."""
        mark = self.transaction.mark()
        going = self._give_up(self._nearest_first(list(victims)))
        self.transaction.undo_to(mark)
        return len(going) == len(victims)

    def _may_go(self, victim: AttemptRecord) -> bool:
        is_own = victim.job.queue == self.head.job.queue
        return super()._may_go(victim) and (is_own or self.state.policy.reclaims(self.head, victim, self.state))


def _keys(victims: Iterable[AttemptRecord]) -> tuple[str, ...]:
    return tuple(sorted(victim.key for victim in victims))
