"""edf: the earliest deadline first, and first of all those that can still be met.

Earliest deadline first meets every deadline on one machine if any order does (Liu and Layland, JACM 1973), but falls
apart under overload, where it spends its time on jobs that are late already. So a job that would miss its deadline
even if it ran alone from now on goes behind all other jobs: it has lost what it could lose by waiting.
"""

from __future__ import annotations

from phalanx.policy.about import About
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy, Targets
from phalanx.policy.view import JobView, Moment

IN_TIME, NO_DEADLINE, TOO_LATE = 0, 1, 2


def edf(parameters: Parameters) -> Policy:
    """`preempt=true` has a job with an earlier deadline stop those with later ones."""
    preempt = parameters.boolean("preempt", default=False)

    def order(job: JobView, at: Moment) -> Key:
        deadline_ms = job.job.deadline_ms
        if deadline_ms is None:
            return (NO_DEADLINE, 0, job.submitted_ms, job.number)
        late = at.now > last_moment_ms(job, deadline_ms, at.now)
        return (TOO_LATE if late else IN_TIME, deadline_ms, job.submitted_ms, job.number)

    def changes(job: JobView, at: Moment) -> int | None:
        if job.job.deadline_ms is None:
            return None
        last_ms = last_moment_ms(job, job.job.deadline_ms, at.now)
        return last_ms + 1 if at.now <= last_ms else None

    return Policy(
        "edf",
        order=order,
        targets=Targets.RANK if preempt else Targets.KEEP,
        changes=changes,
        parameters=parameters.given,
        about=ABOUT,
    )


def last_moment_ms(job: JobView, deadline_ms: int, now: int) -> int:
    """Until when the deadline can be met. One that runs is on time until it has run as long as it says it takes."""
    remaining_ms = max((job.job.duration_ms or 0) - job.executed_ms(now), 0)
    if job.running_since_ms is not None and now + remaining_ms <= deadline_ms:
        return deadline_ms
    return deadline_ms - remaining_ms


ABOUT = About(
    summary="earliest deadline first; what can no longer be met goes last",
    prior_knowledge="deadline and duration",
    foresight=True,
    algorithm="earliest deadline first, with admission",
    decides_by="deadline, then submission",
    dimensions="temporal",
    preemption="with preempt=true, by checkpoint",
    starvation="jobs without a deadline, and those too late, may starve",
    placement="packed",
    source="Liu and Layland, JACM 1973",
)
