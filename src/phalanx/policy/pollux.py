"""pollux: GPUs and batch sizes together, for the most goodput of all (Qiao et al., OSDI 2021).

Jobs report the times of their steps, their batch and the noise scale of their gradients. From that it is worked out how
much each would get done with other numbers of GPUs, at the batch that suits those best. Once an interval sizes are
searched for that make the power mean of all jobs' speed-ups over an equal share the greatest; a job that would have to
change is counted as slower by what that costs. A job tunes its batch by itself: that is the runtime's, in the job.

What is read of a report's `metrics`: `step_ms`, `workers`, `nodes`, `batch`, `batch_first`, `batch_max`, `noise_scale`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from phalanx.policy.about import About
from phalanx.policy.company import told_step_ms
from phalanx.policy.goodput import Goodput, best, fit
from phalanx.policy.growth import stays_whatever
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Memory, Policy, Targets
from phalanx.policy.retries import job_over
from phalanx.policy.rounds import Allotment, begin_round, expect_round, next_round, round_is_due
from phalanx.policy.size_search import Options, search
from phalanx.policy.view import JobView, Moment
from phalanx.protocol.event import Event, Progress, TimerDue
from phalanx.workload.gang import Role

SPEEDUP_MIN = 0.01
"""A job that has nothing counts as this fast, so that a mean over all jobs exists."""

FIRST_BATCH = 1.0
"""The batch of a job that does not say: with one that never changes, any number will do."""

MEASURED_MAX = 32
"""Sizes and batches that are remembered of a job; past it the oldest are forgotten."""


def pollux(parameters: Parameters) -> Policy:
    """`p` is the power of the mean, `restart` what a change costs in seconds; `adapt=false` takes batches as fixed."""
    interval_ms = 1000 * parameters.integer("interval", default=60, least=1)
    power = parameters.integer("p", default=-1, least=-10, most=1)
    restart_ms = 1000 * parameters.integer("restart", default=30, least=0)
    adapt = parameters.boolean("adapt", default=True)
    interference = parameters.boolean("interference", default=True)
    seed = parameters.integer("seed", default=0, least=0)

    def observe(memory: Memory, event: Event, now: int) -> None:
        known = memory.setdefault("known", {})
        match event:
            case TimerDue():
                if round_is_due(memory, now):
                    begin_round(memory, now)
                    memory["round"] = memory.get("round", 0) + 1
                return
            case Progress():
                _learn(known.setdefault(event.job, _nothing_known()), event.metrics)
            case _:
                over = job_over(memory, event)
                if over is not None:
                    known.pop(over, None)
        expect_round(memory, now, interval_ms)

    def sizes(jobs: Sequence[JobView], at: Moment) -> Mapping[str, Mapping[str, int]]:
        nodes = at.nodes()
        gpus, node_gpus = sum(node.gpus for node in nodes), max((node.gpus for node in nodes), default=1)
        contenders = [
            _contender(job, at.memory.get("known", {}).get(job.job.id), node_gpus if interference else 0)
            for job in jobs
        ]
        fair = max(gpus // max(len(jobs), 1), 1)
        options = [_options(each, Goal(fair, node_gpus, power, restart_ms, at.now), adapt) for each in contenders]
        picks = search(options, tuple(each.now for each in contenders), gpus, seed + at.memory.get("round", 0))
        found = zip(contenders, picks, strict=True)
        return {each.job.job.id: each.sizes(pick) for each, pick in found if each.members[pick]}

    allotment = Allotment(interval_ms)
    return Policy(
        "pollux",
        order=allotment.order,
        targets=Targets.RANK,
        changes=allotment.changes,
        sizes=sizes,
        reports_ms=interval_ms,
        observe=observe,
        next_wakeup=next_round,
        parameters=parameters.given,
        about=ABOUT,
    )


@dataclass(frozen=True, slots=True)
class Contender:
    """A job, the numbers of members it may have of the role that varies, and which of them it has now."""

    job: JobView
    known: Mapping[str, Any] | None
    role: Role
    members: tuple[int, ...]
    others_gpus: int
    now: int

    def gpus(self, pick: int) -> int:
        """The GPUs of a choice."""
        return self.members[pick] * self.role.gpus_each + self.others_gpus if self.members[pick] else 0

    def sizes(self, pick: int) -> dict[str, int]:
        """The members of every role."""
        return {
            role.name: self.members[pick] if role.name == self.role.name else role.replicas_min
            for role in self.job.job.gang.roles
        }


@dataclass(frozen=True, slots=True)
class Goal:
    """What speed-ups are measured by."""

    fair_gpus: int
    node_gpus: int
    power: int
    restart_ms: int
    now_ms: int


def _contender(job: JobView, known: Mapping[str, Any] | None, node_gpus: int) -> Contender:
    """What a job may have: up to twice the most it ever had, since more is not known of it (§4.2).

    With `node_gpus` what does not fit one node takes whole nodes, so that no two jobs send from the same one.
    """
    gang = job.job.gang
    role = next(
        (each for each in gang.roles if each.gpus_each and each.replicas_min < each.replicas_max), gang.roles[0]
    )
    if not gang.gpus_max:
        return Contender(job, known, role, (role.replicas_max,), 0, 0)
    others = gang.gpus_min - role.gpus_each * role.replicas_min
    most = min(role.replicas_max, max(2 * (known["most"] if known else 0), role.replicas_min))
    members = [count for count in range(role.replicas_min, most + 1) if _alone(count * role.gpus_each, node_gpus)]
    members = members or [role.replicas_min]
    if not stays_whatever(job):
        members.insert(0, 0)
    have = (job.gpus - others) // role.gpus_each if job.has_devices and role.gpus_each else 0
    now = max((i for i, count in enumerate(members) if count <= have), default=0)
    return Contender(job, known, role, tuple(members), others, now)


def _alone(gpus: int, node_gpus: int) -> bool:
    return not node_gpus or gpus <= node_gpus or gpus % node_gpus == 0


def _options(contender: Contender, goal: Goal, adapt: bool) -> Options:
    gpus = tuple(contender.gpus(pick) for pick in range(len(contender.members)))
    goodput = _goodput(contender.known, adapt)
    fair = _at(goodput, goal.fair_gpus, goal.node_gpus)
    age_ms = contender.job.executed_ms(goal.now_ms)
    changes = contender.known["changes"] if contender.known else 0
    slowed = max(age_ms - changes * goal.restart_ms, 0) / max(age_ms + goal.restart_ms, 1) if age_ms else 1.0
    speedups = [
        _at(goodput, each, goal.node_gpus) / fair * (1.0 if pick == contender.now else slowed)
        for pick, each in enumerate(gpus)
    ]
    return Options(gpus, tuple(_worth(max(speedup, SPEEDUP_MIN), goal.power) for speedup in speedups))


def _at(goodput: Goodput, gpus: int, node_gpus: int) -> float:
    return best(goodput, gpus, -(-gpus // node_gpus)) if gpus else 0.0


def _worth(speedup: float, power: int) -> float:
    """What a speed-up adds to a sum that is greatest where the power mean is (§4.1)."""
    if power == 0:
        return log(speedup)
    return float(speedup**power) * (1 if power > 0 else -1)


def _goodput(known: Mapping[str, Any] | None, adapt: bool) -> Goodput:
    """What is known of a job; one of which nothing is known scales perfectly."""
    if known is None or not known["steps"]:
        return Goodput((1.0, 0.0, 0.0, 0.0, 0.0, 0.0), FIRST_BATCH, FIRST_BATCH, None)
    return Goodput(fit(tuple(known["steps"].items())), known["first"], known["max"], known["noise"] if adapt else None)


def _nothing_known() -> dict[str, Any]:
    return {"steps": {}, "first": FIRST_BATCH, "max": FIRST_BATCH, "noise": None, "most": 0, "last": 0, "changes": 0}


def _learn(known: dict[str, Any], metrics: Mapping[str, float]) -> None:
    """Takes a report to what is known of a job. What makes no sense is left out."""
    workers, step_ms = int(metrics.get("workers", 0.0)), told_step_ms(metrics)
    if workers < 1 or not step_ms:
        return
    known["changes"] += bool(known["last"]) and workers != known["last"]
    known["last"], known["most"] = workers, max(known["most"], workers)
    if metrics.get("batch_first", 0.0) >= 1:
        known["first"] = metrics["batch_first"]
        known["max"] = max(metrics.get("batch_max", 0.0), known["first"])
    noise = metrics.get("noise_scale")
    known["noise"] = noise if noise is not None and noise >= 0 else None
    at = (workers, max(int(metrics.get("nodes", 1.0)), 1), max(int(metrics.get("batch", known["first"])), 1))
    known["steps"].pop(at, None)
    known["steps"][at] = step_ms
    if len(known["steps"]) > MEASURED_MAX:
        del known["steps"][next(iter(known["steps"]))]


ABOUT = About(
    summary="sizes and batches together, for the most goodput of all",
    prior_knowledge="none; step times and gradient noise as jobs report them",
    algorithm="genetic search for the greatest power mean of speed-ups",
    decides_by="goodput",
    dimensions="spatial and temporal",
    preemption="by resizing; jobs without a share of the round",
    starvation="none for p below 0 while there is a minimum for every job",
    placement="packed; jobs larger than a node have whole nodes",
    source="Qiao et al., OSDI 2021",
)
