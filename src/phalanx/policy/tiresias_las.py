"""tiresias-las: least attained service first, in few queues; nothing is known of durations (Gu et al., NSDI 2019).

Inside a queue running jobs go before pending ones, in the order in which they came to run there. Of pending jobs, those
that were stopped go before those that wait for their first turn in that queue, the last stopped first; one that has
just sunk, or been promoted, is last. These are the rules of the authors' simulator, told as a key.
"""

from __future__ import annotations

from phalanx.policy.about import About
from phalanx.policy.attained_service import DEFAULT_LIMITS, AttainedService, turn_of
from phalanx.policy.loose import consolidate_skewed
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy, Targets, as_asked
from phalanx.policy.view import JobView, Moment

RUNS, STOPPED, NEXT = 0, 1, 2
"""The parts of a queue: jobs that run, that were stopped, and that wait for the first turn."""


def tiresias_las(parameters: Parameters) -> Policy:
    """`dims` 1 or 2, `limits` between the queues in (GPU-)seconds, `starvation` times its run a job waits at most."""
    service = AttainedService(parameters.choice("dims", ("2", "1")), parameters.numbers("limits", DEFAULT_LIMITS))
    starvation = parameters.number_or_off("starvation")

    def order(job: JobView, at: Moment) -> Key:
        queue = service.queue(service.attained(job, at.now))
        if job.has_devices:
            sank_ms = service.sank_ms(job, queue, at.now)
            return (queue, NEXT if sank_ms == at.now else RUNS, *turn_of(job, sank_ms))
        if job.stopped_ms is None:
            return (queue, NEXT, job.submitted_ms, 0, job.number)
        promoted_ms = job.marks.get("promoted_ms", -1)
        if promoted_ms >= job.stopped_ms:
            return (queue, NEXT, promoted_ms, 1, job.number)
        sank_ms = service.sank_ms(job, queue, at.now)
        if sank_ms == job.stopped_ms:
            return (queue, NEXT, job.stopped_ms, 1, job.number)
        return (queue, STOPPED, -job.stopped_ms, *turn_of(job, sank_ms))

    def changes(job: JobView, at: Moment) -> int | None:
        queue = service.queue(service.attained(job, at.now))
        if not job.has_devices:
            return starves_ms(job, queue)
        if service.sank_ms(job, queue, at.now) == at.now or begins_anew(job):
            return at.now + 1
        return service.sinks_ms(job, at.now)

    def begins_anew(job: JobView) -> bool:
        """Whether a job runs for the first time since it was promoted: what it waited until then does not count."""
        return job.running_since_ms is not None and job.marks.get("anew", 0) > 0

    def starves_ms(job: JobView, queue: int) -> int | None:
        executed_ms = job.executed_before_ms - job.marks.get("executed_ms", 0)
        if queue == 0 or job.first_start_ms is None or starvation is None or not executed_ms:
            return None
        waited_from_ms = job.first_start_ms + job.executed_before_ms + job.marks.get("waited_ms", 0)
        return waited_from_ms + int(executed_ms * starvation)

    def due(job: JobView, at: Moment) -> None:
        if begins_anew(job):
            job.marks["anew"] = 0
            job.marks["waited_ms"] = (job.running_since_ms or 0) - (job.first_start_ms or 0) - job.executed_before_ms
        elif not job.has_devices:
            job.marks["reset"] = job.marks.get("reset", 0) + service.attained(job, at.now)
            job.marks["executed_ms"] = job.executed_before_ms
            job.marks["promoted_ms"] = at.now
            job.marks["anew"] = 1

    return Policy(
        "tiresias-las",
        order=order,
        targets=Targets.RANK,
        changes=changes,
        due=due,
        shape=consolidate_skewed if parameters.boolean("profile", default=True) else as_asked,
        parameters=parameters.given,
        about=ABOUT,
    )


ABOUT = About(
    summary="least attained service in discretised queues",
    algorithm="least attained service",
    decides_by="attained service",
    dimensions="spatial and temporal",
    preemption="yes, by checkpoint, at queue borders",
    starvation="jobs that sank may starve; with starvation=N they rise after N times their run",
    placement="by profile: only skewed models are consolidated",
    source="Gu et al., NSDI 2019",
)
