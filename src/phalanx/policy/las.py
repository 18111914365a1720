"""las: least attained service first, in quanta so that equals do not stop one another at every moment.

Nothing need be known of a job: the one that has had least so far goes first (Nuyens and Wierman, Performance Evaluation
2008).
"""

from __future__ import annotations

from phalanx.policy.about import About
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy, Targets
from phalanx.policy.view import JobView, Moment


def las(parameters: Parameters) -> Policy:
    """`quantum` is the service in GPU-seconds that counts as one step; `dims=1` counts seconds only."""
    quantum = 1000 * parameters.integer("quantum", default=3600, least=1)
    dims = parameters.choice("dims", ("2", "1"))

    def rate(job: JobView) -> int:
        return max(job.gpus, 1) if dims == "2" else 1

    def service(job: JobView, now: int) -> int:
        return job.service_gpu_ms(now) if dims == "2" else job.executed_ms(now)

    def order(job: JobView, at: Moment) -> Key:
        return (service(job, at.now) // quantum, job.submitted_ms, job.number)

    def changes(job: JobView, at: Moment) -> int | None:
        if job.running_since_ms is None:
            return None
        left = quantum - service(job, at.now) % quantum
        return at.now + -(-left // rate(job))

    return Policy("las", order=order, targets=Targets.RANK, changes=changes, parameters=parameters.given, about=ABOUT)


ABOUT = About(
    summary="least attained service first, in quanta",
    algorithm="least attained service",
    decides_by="attained service",
    dimensions="spatial and temporal",
    preemption="yes, by checkpoint",
    starvation="a stream of new jobs may starve old ones",
    placement="packed",
    source="Nuyens and Wierman, Performance Evaluation 2008",
)
