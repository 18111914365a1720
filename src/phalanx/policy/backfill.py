"""backfill: first come, first served, with reservations for pending jobs; jobs that fit before these run.

EASY reserves for the head only, conservative for every pending job, up to a depth (Mu'alem and Feitelson, IEEE TPDS
2001). Both rest on how long jobs say they take.
"""

from __future__ import annotations

from phalanx.policy.about import About
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy, Reserve
from phalanx.policy.view import JobView, Moment

MODES = {"easy": Reserve.HEAD, "conservative": Reserve.EVERYBODY}


def reserve_of(parameters: Parameters) -> Reserve:
    """For which jobs devices are reserved under a policy that has `backfill` as a parameter."""
    return MODES.get(parameters.choice("backfill", ("off", *MODES)), Reserve.NOBODY)


def backfill(parameters: Parameters) -> Policy:
    """`mode` says for which jobs devices are reserved; `order=priority` puts higher priorities first;
    `estimate=learned` takes the length of jobs that say none from the `quantile` percent of their like.
    """
    mode = parameters.choice("mode", tuple(MODES))
    by_priority = parameters.choice("order", ("submission", "priority")) == "priority"
    learned = parameters.choice("estimate", ("said", "learned")) == "learned"
    percent = parameters.integer("quantile", default=80, least=1, most=100)

    def order(job: JobView, at: Moment) -> Key:
        return (-job.job.priority if by_priority else 0, job.submitted_ms, job.number)

    return Policy(
        "backfill",
        order=order,
        reserve=MODES[mode],
        estimate_permille=10 * percent if learned else None,
        parameters=parameters.given,
        about=ABOUT,
    )


ABOUT = About(
    summary="first come, first served; a later job passes if it delays no reservation",
    prior_knowledge="duration, as an estimate",
    foresight=True,
    algorithm="FIFO with EASY or conservative backfilling",
    decides_by="arrival time and estimated end",
    dimensions="temporal",
    preemption="no",
    starvation="no: pending jobs have reserved starts",
    source="Mu'alem and Feitelson, IEEE TPDS 2001",
)
