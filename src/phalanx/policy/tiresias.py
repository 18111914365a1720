"""tiresias: attained service in few queues, so that only who crosses a border is stopped (Gu et al., NSDI 2019).

Two-dimensional attained service is GPUs times executed time. A job begins in the first queue and sinks as its service
passes the limits. `tiresias-las` knows nothing of durations; `tiresias-gittins` knows how they were distributed.

Inside a queue of `tiresias-las` who runs goes before who waits, in the order in which they came to run there. Of those
who wait, who was stopped goes before those who wait for their first turn in that queue, the last who was stopped first;
who has just sunk, or been promoted, is last. These are the rules of the authors' simulator, told as a key.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from phalanx.policy.about import About
from phalanx.policy.loose import consolidate_skewed
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy, Targets, as_asked
from phalanx.policy.view import JobView, Moment

RUNS, STOPPED, NEXT = 0, 1, 2
"""The parts of a queue: who runs, who was stopped, and who waits for the first turn."""

DEFAULT_LIMITS = (3250, 7200)
"""Service in seconds (or GPU-seconds) at which a job sinks, as in the authors' simulator."""

INDEX_SCALE = 10**18


class Service:
    """How far a job has come: what it attained, in which queue that puts it, and when it came there."""

    def __init__(self, dims: str, limits: tuple[int, ...]) -> None:
        self.two_dimensional = dims == "2"
        self.limits = tuple(1000 * limit for limit in limits)

    def rate(self, job: JobView) -> int:
        """Service per millisecond while the job runs."""
        return max(job.gpus, 1) if self.two_dimensional else 1

    def attained(self, job: JobView, now: int) -> int:
        """Service since the job was last promoted, if ever."""
        total = job.service_gpu_ms(now) if self.two_dimensional else job.executed_ms(now)
        return total - job.marks.get("reset", 0)

    def before(self, job: JobView) -> int:
        """Service without the present attempt."""
        total = job.service_before_gpu_ms if self.two_dimensional else job.executed_before_ms
        return total - job.marks.get("reset", 0)

    def queue(self, attained: int) -> int:
        """The queue that a service belongs to."""
        return bisect_right(self.limits, attained)

    def sank_ms(self, job: JobView, queue: int, now: int) -> int | None:
        """When the job came to a queue, if that was in the attempt that runs, or in the last one while it waits."""
        if queue == 0:
            return None
        limit = self.limits[queue - 1]
        if job.running_since_ms is not None:
            sank = self.before(job) < limit
            return now - (self.attained(job, now) - limit) // self.rate(job) if sank else None
        if job.has_devices or job.stopped_ms is None:
            return None
        sank_ms = job.stopped_ms - (self.before(job) - limit) // self.rate(job)
        return sank_ms if sank_ms > job.opened[0] else None

    def turn(self, job: JobView, queue: int, now: int) -> Key:
        """Where a job stands among those who run in a queue: who sank to it goes behind who got devices just then."""
        sank_ms = self.sank_ms(job, queue, now)
        opened_ms, place = job.opened
        return (opened_ms, 0, place) if sank_ms is None else (sank_ms, 1, job.number)

    def sinks_ms(self, job: JobView, now: int) -> int | None:
        """When the running job will leave its queue if it keeps its size."""
        attained = self.attained(job, now)
        queue = self.queue(attained)
        if job.running_since_ms is None or queue == len(self.limits):
            return None
        return now - (attained - self.limits[queue]) // self.rate(job)


def tiresias_las(parameters: Parameters) -> Policy:
    """`dims` 1 or 2, `limits` between the queues in (GPU-)seconds, `starvation` times its run a job waits at most."""
    service = Service(parameters.choice("dims", ("2", "1")), parameters.numbers("limits", DEFAULT_LIMITS))
    starvation = parameters.number_or_off("starvation")

    def order(job: JobView, at: Moment) -> Key:
        queue = service.queue(service.attained(job, at.now))
        if job.has_devices:
            sinks_now = service.sank_ms(job, queue, at.now) == at.now
            return (queue, NEXT if sinks_now else RUNS, *service.turn(job, queue, at.now))
        if job.stopped_ms is None:
            return (queue, NEXT, job.submitted_ms, 0, job.number)
        promoted_ms = job.marks.get("promoted_ms", -1)
        if promoted_ms >= job.stopped_ms:
            return (queue, NEXT, promoted_ms, 1, job.number)
        if service.sank_ms(job, queue, at.now) == job.stopped_ms:
            return (queue, NEXT, job.stopped_ms, 1, job.number)
        return (queue, STOPPED, -job.stopped_ms, *service.turn(job, queue, at.now))

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
        about=ABOUT_LAS,
    )


def tiresias_gittins(parameters: Parameters) -> Policy:
    """`samples` are total services of past jobs in GPU-seconds; `quantum` is how far ahead the index looks."""
    service = Service(parameters.choice("dims", ("2", "1")), parameters.numbers("limits", DEFAULT_LIMITS))
    samples = parameters.needed_numbers("samples", "a FILE of total GPU-seconds of past jobs, one a line, or 1/2/3")
    index = Gittins(samples, parameters.integer("quantum", default=3250, least=1))
    rank = index.of_theory if parameters.choice("index", ("theory", "code")) == "theory" else index.of_code

    def order(job: JobView, at: Moment) -> Key:
        attained = service.attained(job, at.now)
        return (service.queue(attained), -rank(attained), job.submitted_ms, job.number)

    def changes(job: JobView, at: Moment) -> int | None:
        return service.sinks_ms(job, at.now)

    return Policy(
        "tiresias-gittins",
        order=order,
        targets=Targets.DRIFT,
        changes=changes,
        shape=consolidate_skewed if parameters.boolean("profile", default=True) else as_asked,
        parameters=parameters.given,
        about=ABOUT_GITTINS,
    )


class Gittins:
    """The Gittins index of an attained service: the best chance of ending within the quantum per service it takes.

    With samples d of total service and quantum Δ, at service a: P is the share of those longer than a that end by
    a + Δ, E the mean of min(d − a, Δ) over them, and the index P / E (Gittins, Bandit Processes, 1979).
    """

    def __init__(self, samples: tuple[int, ...], quantum_s: int) -> None:
        self.samples = sorted(1000 * sample for sample in samples)
        self.quantum = 1000 * quantum_s
        self._sums = (0, *accumulate(self.samples))

    def _within(self, attained: int) -> tuple[int, int, int]:
        """Samples no longer than this service, those that end within the quantum, and all others, as positions."""
        first = bisect_right(self.samples, attained)
        last = bisect_right(self.samples, attained + self.quantum)
        return first, last, len(self.samples)

    def of_theory(self, attained: int) -> int:
        """The index, as an integer."""
        first, last, count = self._within(attained)
        if first == count:
            return 0
        spent = self._sums[last] - self._sums[first] - attained * (last - first) + self.quantum * (count - last)
        return INDEX_SCALE * (last - first) // spent

    def of_code(self, attained: int) -> int:
        """As the authors' simulator has it, which adds up whole sizes instead of what is left of them."""
        first, last, count = self._within(attained)
        if first == count:
            return 0
        spent = self._sums[last] - self._sums[first] + self.quantum * (count - last)
        return INDEX_SCALE * (last - first) // spent


ABOUT_LAS = About(
    summary="least attained service in discretised queues",
    algorithm="least attained service",
    decides_by="attained service",
    dimensions="spatial and temporal",
    preemption="yes, by checkpoint, at queue borders",
    starvation="who sank may starve; with starvation=N it rises after N times its run",
    placement="by profile: only skewed models are consolidated",
    source="Gu et al., NSDI 2019",
)
ABOUT_GITTINS = About(
    summary="highest Gittins index in discretised queues",
    prior_knowledge="distribution of service",
    algorithm="Gittins index",
    decides_by="attained service",
    dimensions="spatial and temporal",
    preemption="yes, by checkpoint",
    starvation="who has a low index may starve",
    placement="by profile: only skewed models are consolidated",
    source="Gu et al., NSDI 2019",
)
