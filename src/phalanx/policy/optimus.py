"""optimus: workers go to the jobs that they bring nearest to their end (Peng et al., EuroSys 2018).

Running jobs report their loss and pace. From the losses it is worked out how many steps a job will still take, from the
paces how long a step would take with other numbers of workers and parameter servers. Once an interval every job gets
its minimum, in the order of submission, and then the worker or server that saves the most time for what it takes of its
dominant resource is added, until nothing fits or helps.

What is read of a report: `step`, and of `metrics` `loss`, `epoch_steps` and `epoch_drop` (the job has converged when an
epoch lowers its loss by less), `step_ms`, `workers`, `servers` and `nodes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.policy.about import About
from phalanx.policy.company import told_step_ms
from phalanx.policy.growth import Gain, Growth, elastic_roles, stays_whatever
from phalanx.policy.least_squares import non_negative
from phalanx.policy.loss_curve import LossCurve, fit, thinned
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Memory, Policy, Targets
from phalanx.policy.retries import job_over
from phalanx.policy.rounds import Allotment, begin_round, expect_round, next_round, round_is_due
from phalanx.policy.view import JobView, Moment
from phalanx.protocol.event import Event, Progress, TimerDue

REFIT = 1.25
"""A curve is fitted anew when there are so many times the samples of its last fit: fits cost more than they change."""

ERROR_MAX = 0.1
"""A curve that is off by more than this part of the drop so far is a poor estimate."""

LOSSES = (1e-12, 1e15)
"""A loss beyond these says nothing of a curve, and an epoch that lowers it by less than the least never comes."""

PRIOR = 0.05
"""What perfect scaling weighs beside a measured pace, so that one measurement says something of other sizes."""

Form = Callable[[int, int, bool], tuple[float, ...]]
"""The terms of a step's time, by workers and servers, and whether a job lies apart that would fit one node."""

Paces = Mapping[tuple[int, int, int], float]
"""The time of a step that was measured with so many workers and servers on so many nodes."""


def all_reduce(workers: int, servers: int, apart: bool) -> tuple[float, ...]:
    """The batch divided by the workers, what does not depend on them, and what each adds (§3.2 without servers).

    The last is ours: by how much the first grows where a job lies apart that need not. What those lose by lying apart
    that are larger than a node is part of what each worker adds.
    """
    return (1 / workers, 1.0, float(workers), apart / workers)


def parameter_servers(workers: int, servers: int, apart: bool) -> tuple[float, ...]:
    """Likewise, with the traffic of all workers divided by the servers, and what each server adds (§3.2)."""
    return (1 / workers, 1.0, workers / servers, float(workers), float(servers), apart / workers)


def optimus(parameters: Parameters) -> Policy:
    """`interval` is how often sizes are worked out; `damping` counts the gain of jobs whose estimates are poor.

    Jobs report every `reports` seconds: the paper samples the loss of every step, which says little more.
    """
    interval_ms = 1000 * parameters.integer("interval", default=600, least=1)
    damping = parameters.integer("damping", default=95, least=0, most=100) / 100
    reports_ms = 1000 * parameters.integer("reports", default=60, least=1)
    by_gain = parameters.choice("gain", ("time", "off")) == "time"

    def observe(memory: Memory, event: Event, now: int) -> None:
        known = memory.setdefault("known", {})
        match event:
            case TimerDue():
                if round_is_due(memory, now):
                    begin_round(memory, now)
                    _fit_all(known)
                return
            case Progress():
                _learn(known.setdefault(event.job, _nothing_known()), event)
            case _:
                over = job_over(memory, event)
                if over is not None:
                    known.pop(over, None)
        expect_round(memory, now, interval_ms)

    def sizes(jobs: Sequence[JobView], at: Moment) -> Mapping[str, Mapping[str, int]]:
        growth = Growth(at.total)
        for job in sorted(jobs, key=stays_whatever, reverse=True):
            growth.admit(job)
        growth.divide(_by_time(at, interval_ms, damping) if by_gain else in_turn)
        return growth.sizes

    allotment = Allotment(interval_ms)
    return Policy(
        "optimus",
        order=allotment.order,
        targets=Targets.RANK,
        changes=allotment.changes,
        sizes=sizes,
        reports_ms=reports_ms,
        observe=observe,
        next_wakeup=next_round,
        parameters=parameters.given,
        about=ABOUT,
    )


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known of a job: the steps it still takes, and the time of a step by workers and servers."""

    steps_left: float
    form: Form
    coefficients: tuple[float, ...]
    is_poor: bool

    def left_ms(self, workers: int, servers: int) -> float:
        """How long it still takes with so many, as close together as can be."""
        terms = self.form(workers, max(servers, 1), False)
        return self.steps_left * sum(a * b for a, b in zip(self.coefficients, terms, strict=True))


def _by_time(at: Moment, interval_ms: int, damping: float) -> Gain:
    """The time that a member saves its job; of one that is hard to tell the end of, a little less."""
    estimates: dict[str, Estimate] = {}
    node_gpus = max((node.gpus for node in at.nodes()), default=1)

    def gain(job: JobView, sizes: dict[str, int], role: str) -> float:
        if job.job.id not in estimates:
            known = at.memory.get("known", {}).get(job.job.id)
            each = max(role.gpus_each for role in job.job.gang.roles) or 1
            estimates[job.job.id] = estimate(job, known, at.now, interval_ms, node_gpus // each)
        found = estimates[job.job.id]
        more = {**sizes, role: sizes[role] + 1}
        saved_ms = found.left_ms(*counted(job, sizes)) - found.left_ms(*counted(job, more))
        return saved_ms * (damping if found.is_poor else 1.0)

    return gain


def in_turn(job: JobView, sizes: dict[str, int], role: str) -> float:
    """The job with the least is next: what is left if nothing is known of any job."""
    return 1.0 / sum(sizes.values())


def counted(job: JobView, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Workers, which are all members with GPUs, and servers, which are those without."""
    workers = sum(sizes[role.name] for role in job.job.gang.roles if role.gpus_each)
    servers = sum(sizes[role.name] for role in job.job.gang.roles if not role.gpus_each)
    return max(workers, 1), servers


def estimate(job: JobView, known: Mapping[str, Any] | None, now: int, interval_ms: int, per_node: int) -> Estimate:
    """What a job still takes, from what it has reported; `per_node` of its workers fit one node.

    One that has reported nothing, or whose loss does not fall, is taken to be halfway: it takes as long again.
    """
    form = parameter_servers if any(not role.gpus_each for role in elastic_roles(job.job.gang)) else all_reduce
    if known is None or not known["paces"]:
        each = max(role.gpus_each for role in job.job.gang.roles) or 1
        workers = max(job.gpus // each, 1)
        scaled = (float(workers), *[0.0] * (len(form(1, 1, False)) - 1))
        return Estimate(float(max(job.executed_ms(now), interval_ms)), form, scaled, is_poor=True)
    curve: LossCurve | None = known["curve"]
    end = curve.converges_at(*known["rule"]) if curve is not None else None
    step = known["step"]
    left = max(step, 1.0) if end is None else max(end - step, known["rule"][0])
    is_poor = end is None or curve is None or curve.error > ERROR_MAX
    return Estimate(left, form, coefficients(known["paces"], form, per_node), is_poor)


def coefficients(paces: Paces, form: Form, per_node: int) -> tuple[float, ...]:
    """Those of the step's time that come closest to what was measured, by relative error."""
    rows, values = [], []
    for (workers, servers, nodes), step_ms in paces.items():
        rows.append([term / step_ms for term in form(workers, max(servers, 1), lies_apart(workers, nodes, per_node))])
        values.append(1.0)
        for times in (0.5, 2.0):
            scaled_ms = step_ms / times
            terms = form(1, max(servers, 1), False)
            ideal = [terms[0] / (workers * times), *terms[1:]]
            rows.append([PRIOR * term / scaled_ms for term in ideal])
            values.append(PRIOR)
    return non_negative(rows, values)


def lies_apart(workers: int, nodes: int, per_node: int) -> bool:
    """Whether workers lie on several nodes although one would hold them."""
    return nodes > 1 and workers <= per_node


def _nothing_known() -> dict[str, Any]:
    return {"samples": [], "step": 0.0, "rule": (1.0, 0.0), "paces": {}, "curve": None, "fitted": 0, "seen": 0}


def _learn(known: dict[str, Any], report: Progress) -> None:
    """Takes a report to what is known of a job. Loss and pace that make no sense are left out."""
    metrics = report.metrics
    known["step"] = float(report.step)
    if LOSSES[0] <= metrics.get("loss", 0.0) <= LOSSES[1]:
        known["samples"] = thinned([*known["samples"], (float(report.step), metrics["loss"])])
        known["seen"] += 1
        drop = metrics.get("epoch_drop", 0.0)
        known["rule"] = (max(metrics.get("epoch_steps", 1.0), 1.0), drop if drop >= LOSSES[0] else 0.0)
    step_ms = told_step_ms(metrics)
    if step_ms and metrics.get("workers", 0.0) >= 1:
        at = (int(metrics["workers"]), int(metrics.get("servers", 0.0)), max(int(metrics.get("nodes", 1.0)), 1))
        known["paces"][at] = step_ms


def _fit_all(known: Mapping[str, dict[str, Any]]) -> None:
    """Fits the curves of jobs of which there are enough new losses."""
    for job in known.values():
        if job["seen"] >= REFIT * max(job["fitted"], 1):
            job["curve"], job["fitted"] = fit(job["samples"]), job["seen"]


ABOUT = About(
    summary="workers where they save the most time, by loss curves and paces learned online",
    prior_knowledge="none; losses and paces as jobs report them",
    algorithm="marginal gain",
    decides_by="remaining time",
    dimensions="spatial and temporal",
    preemption="by resizing; jobs without a share of the round",
    starvation="none while there is a minimum for every job; then later submissions wait",
    placement="packed",
    source="Peng et al., EuroSys 2018",
)
