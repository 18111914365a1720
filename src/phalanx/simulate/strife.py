"""Strife: jobs that stop one another again and again and get nothing done, so that a run would never end.

A policy that has a yield to b and b to a does that; so does one whose turns are shorter than a start takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from phalanx.engine.state.records import JobRecord, StopReason
from phalanx.engine.state.state import State
from phalanx.policy.guarded import PolicyError
from phalanx.protocol.action import Action, Resize, Stop
from phalanx.protocol.plan import Plan
from phalanx.simulate.world.virtual import VirtualBackend

IN_VAIN_MAX = 10_000
"""How often in a row one job may be interrupted with nothing done in between, beside once for all that came or went.

A job is interrupted since another came, ended or was cancelled, since a node did, or since the policy's order has
changed with time or with the work that was done. Turns whose work is lost can be over when another job ends that gets
on: so many are let pass.
"""

IDLE_MAX = 1_000
"""The same where it did not even come to work in between, as when all this is at one moment."""


@dataclass(slots=True)
class Streak:
    """A row of interruptions of one job between which it got nothing done, whether it has `worked` or not."""

    done_ms: float
    worked: int
    since_ms: int
    interruptions: int = 0
    news: int = 0

    def is_endless(self, worked: int) -> bool:
        """Whether there are more than all that came or went could explain."""
        return self.interruptions > self.news + (IDLE_MAX if worked == self.worked else IN_VAIN_MAX)


class Strife:
    """Looks at jobs that are interrupted, and ends a run in which that leads nowhere. `faults` are moments at which
    nodes failed or came back.
    """

    def __init__(self, faults: Iterable[int] = ()) -> None:
        self._faults = tuple(faults)
        self._streaks: dict[str, Streak] = {}

    def look(self, plan: Plan, state: State, world: VirtualBackend) -> None:
        """Looks at a plan that has been carried out; PolicyError names the policy that is at odds with itself."""
        for action in plan.actions:
            if _interrupts(action):
                job = action.id.job
                worked = world.ledger.account(job).computed
                streak = self._streak(job, world.lives[job].done_ms, worked, state.now)
                streak.interruptions += 1
                if streak.is_endless(worked):
                    streak.news = self._news(state.jobs.values(), streak.since_ms)
                    if streak.is_endless(worked):
                        raise PolicyError(_told(streak, action, plan, state))

    def _streak(self, job: str, done_ms: float, worked: int, now: int) -> Streak:
        streak = self._streaks.get(job)
        # Less may be done than before, too, where a node has failed: it was at work in between all the same.
        if streak is None or streak.done_ms != done_ms:
            streak = self._streaks[job] = Streak(done_ms, worked, now)
        return streak

    def _news(self, jobs: Iterable[JobRecord], since_ms: int) -> int:
        """How many jobs and nodes have come or gone since a moment."""
        moments = [moment for job in jobs for moment in (job.submitted_ms, job.ended_ms) if moment is not None]
        return sum(moment >= since_ms for moment in (*moments, *self._faults))


def _interrupts(action: Action) -> bool:
    return isinstance(action, Resize) or (isinstance(action, Stop) and action.reason == StopReason.PREEMPTED)


def _told(streak: Streak, action: Action, plan: Plan, state: State) -> str:
    job, key = action.id.job, f"{action.id.job}/{action.id.attempt}"
    head = next((claim.job for claim in plan.claims if key in claim.victims), "")
    what = f"stopped for job {head}" if head else "moved or resized" if isinstance(action, Resize) else "stopped"
    return (
        f"policy {state.policy.spec}: job {job} was {what} at {state.now / 1000:g} s, and has been interrupted "
        f"{streak.interruptions:,} times since {streak.since_ms / 1000:g} s with no work done in between: this run "
        "would never end. Let at most one of two jobs preempt the other, and let every job run for longer than it "
        "takes to start and to save"
    )
