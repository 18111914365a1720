"""tiresias-gittins: highest Gittins index first, in few queues by attained service; it is known how services were
distributed, not which job has which (Gu et al., NSDI 2019).
"""

from __future__ import annotations

from phalanx.policy.about import About
from phalanx.policy.attained_service import DEFAULT_LIMITS, AttainedService
from phalanx.policy.gittins import Gittins
from phalanx.policy.loose import consolidate_skewed
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy, Targets, as_asked
from phalanx.policy.view import JobView, Moment


def tiresias_gittins(parameters: Parameters) -> Policy:
    """`samples` are total services of past jobs in GPU-seconds; `quantum` is how far ahead the index looks; with
    `inside=running` only a job that crosses the border of a queue is stopped.
    """
    service = AttainedService(parameters.choice("dims", ("2", "1")), parameters.numbers("limits", DEFAULT_LIMITS))
    samples = parameters.needed_numbers("samples", "a FILE of total GPU-seconds of past jobs, one a line, or 1/2/3")
    index = Gittins(samples, parameters.integer("quantum", default=3250, least=1))
    rank = index.of_theory if parameters.choice("index", ("theory", "code")) == "theory" else index.of_code
    keeps_place = parameters.choice("inside", ("index", "running")) == "running"

    def order(job: JobView, at: Moment) -> Key:
        attained = service.attained(job, at.now)
        queue = service.queue(attained)
        return (queue, int(keeps_place and not stays(job, queue, at)), -rank(attained), job.submitted_ms, job.number)

    def stays(job: JobView, queue: int, at: Moment) -> bool:
        """Whether a job runs in its queue already: one that sinks to it now yields to those that wait there."""
        return job.has_devices and service.sank_ms(job, queue, at.now) != at.now

    def changes(job: JobView, at: Moment) -> int | None:
        return service.sinks_ms(job, at.now)

    return Policy(
        "tiresias-gittins",
        order=order,
        targets=Targets.DRIFT,
        changes=changes,
        shape=consolidate_skewed if parameters.boolean("profile", default=True) else as_asked,
        parameters=parameters.given,
        about=ABOUT,
    )


ABOUT = About(
    summary="highest Gittins index in discretised queues",
    prior_knowledge="distribution of service",
    algorithm="Gittins index",
    decides_by="attained service",
    dimensions="spatial and temporal",
    preemption="yes, by checkpoint",
    starvation="jobs with a low index may starve",
    placement="by profile: only skewed models are consolidated",
    source="Gu et al., NSDI 2019",
)
