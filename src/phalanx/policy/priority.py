"""priority: Borg's shape. Bands of priority, bin packing, and preemption of the attempts that lose the least.

A higher priority goes first and may stop a lower one, except that production jobs do not stop one another: else a
change in one production job would ripple through all below it (Verma et al., EuroSys 2015, §2.5). Before any attempt is
stopped, jobs of the same or a lower priority are moved out of the way, if they land elsewhere at once.
"""

from __future__ import annotations

from dataclasses import replace

from phalanx.policy.about import About
from phalanx.policy.backfill import reserve_of
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Minds, Policy, Reserve
from phalanx.policy.view import JobView, Moment, RunView


def priority(parameters: Parameters) -> Policy:
    """`production` and `monitoring` are the least priorities of those bands; `backfill` says which jobs get a time."""
    production = parameters.integer("production", default=200)
    monitoring = parameters.integer("monitoring", default=300)
    reserve = reserve_of(parameters)
    if monitoring < production:
        raise ValueError(f"priority: monitoring={monitoring} must not be less than production={production}")

    def order(job: JobView, at: Moment) -> Key:
        return (-job.job.priority, job.submitted_ms, job.number)

    def victims(head: JobView, victim: RunView, at: Moment) -> bool:
        above, below = head.job.priority, victim.job.priority
        both_production = production <= below and above < monitoring
        return below < above and not both_production

    def moves(head: JobView, other: RunView, at: Moment) -> bool:
        return other.job.priority <= head.job.priority

    return Policy(
        "priority",
        order=order,
        reserve=reserve,
        victims=victims,
        moves=moves,
        minds=Minds.PRIORITIES,
        parameters=parameters.given,
        about=replace(ABOUT, foresight=reserve is not Reserve.NOBODY),
    )


ABOUT = About(
    summary="higher priorities first, moving or stopping others at the least loss of work",
    prior_knowledge="priority",
    algorithm="bands of priority",
    decides_by="priority, then arrival time",
    dimensions="temporal",
    preemption="yes, of lower priorities; production does not stop production",
    starvation="low priorities may starve",
    placement="packed",
    source="Verma et al., EuroSys 2015",
)
