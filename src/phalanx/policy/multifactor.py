"""multifactor: Slurm's priority. A weighted sum of factors from 0 to 1, worked out anew every few minutes.

    priority = Σ weight · factor      age, fairshare, size, queue, priority

As in Slurm, what a job is worth is looked at when it is enqueued and then once a period, for all jobs at the same
moments, and not as time passes in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from phalanx.policy.about import About
from phalanx.policy.backfill import reserve_of
from phalanx.policy.factor import Factor
from phalanx.policy.fair_tree import fairshares, level_fairshare
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy, Reserve
from phalanx.policy.survey import Survey
from phalanx.policy.view import JobView, Moment, Usage

WEIGHTS = {"age": 1000, "fairshare": 10_000, "size": 1000, "queue": 1000, "priority": 10_000}
"""The factors, and what they weigh if nothing is said."""

WEIGHT_MAX = 10**9
IDLE = Usage()


def multifactor(parameters: Parameters) -> Policy:
    """`age`, `fairshare`, `size`, `queue` and `priority` are weights; `backfill` says which jobs get a time."""
    rule = Rule.of(parameters)
    half_life_ms = parameters.duration_ms("half_life", "7d")
    period_ms = parameters.duration_ms("period", "5m")
    reserve = reserve_of(parameters)

    def order(job: JobView, at: Moment) -> Key:
        return (-rule.priority(job, at), job.submitted_ms, job.number)

    def changes(job: JobView, at: Moment) -> int | None:
        if job.has_devices or not rule.will_change(job, at):
            return None
        return (at.now // period_ms + 1) * period_ms

    return Policy(
        "multifactor",
        order=order,
        reserve=reserve,
        changes=changes,
        half_life_ms=half_life_ms,
        factors=rule.factors,
        measures=level_fairshare,
        parameters=parameters.given,
        about=replace(ABOUT, foresight=reserve is not Reserve.NOBODY),
    )


class Standings(NamedTuple):
    """What is the same for all jobs at a moment: the fairshare of every queue, and the highest priority of one."""

    fairshare: Mapping[str, float]
    priority_max: int


def standings(at: Moment) -> Standings:
    """Those of a moment."""
    return Standings(fairshares(at), max((_priority(queue, at) for queue in at.queues()), default=0))


def _priority(queue: str, at: Moment) -> int:
    found = at.queue(queue)
    return found.priority if found is not None else 0


@dataclass(frozen=True, slots=True)
class Rule:
    """What the factors are made from."""

    weights: Mapping[str, int]
    max_age_ms: int
    favors_large: bool
    priority_max: int
    standings: Survey[Standings] = field(default_factory=lambda: Survey(standings))

    @classmethod
    def of(cls, parameters: Parameters) -> Rule:
        """As the parameters say."""
        return cls(
            {name: parameters.integer(name, default, least=0, most=WEIGHT_MAX) for name, default in WEIGHTS.items()},
            max_age_ms=parameters.duration_ms("max_age", "7d"),
            favors_large=parameters.choice("favor", ("large", "small")) == "large",
            priority_max=parameters.integer("priority_max", default=1000, least=1),
        )

    def priority(self, job: JobView, at: Moment) -> int:
        """What a job is worth, in whole points."""
        return int(sum(factor.points for factor in self.factors(job, at)))

    def factors(self, job: JobView, at: Moment) -> tuple[Factor, ...]:
        """Every factor of a job."""
        queues = self.standings(at)
        values = {
            "age": self._age(job, at),
            "fairshare": queues.fairshare[job.job.queue],
            "size": self._size(job, at),
            "queue": _part(_priority(job.job.queue, at), queues.priority_max),
            "priority": _part(job.job.priority, self.priority_max),
        }
        return tuple(Factor(name, value, self.weights[name]) for name, value in values.items())

    def will_change(self, job: JobView, at: Moment) -> bool:
        """Whether a pending job will be worth something else by itself.

        Once it is as old as counts, only what queues use changes it. With no job running nothing does, and a
        simulation in which a job can never run comes to its end.
        """
        if self.weights["age"] and self._age(job, at) < 1:
            return True
        return bool(self.weights["fairshare"]) and any(at.usage(queue) != IDLE for queue in at.queues())

    def _age(self, job: JobView, at: Moment) -> float:
        """How long it could have run, of what counts at most."""
        return _part(at.now - max(job.submitted_ms, job.job.begin_ms or 0), self.max_age_ms)

    def _size(self, job: JobView, at: Moment) -> float:
        """Its part of the GPUs, or with favor=small what it leaves of them."""
        part = _part(1000 * job.job.gang.gpus_min, at.total.gpu_permille)
        return part if self.favors_large else 1 - part


def _part(amount: int, whole: int) -> float:
    """A part of a whole, from 0 to 1."""
    return min(max(amount / whole, 0.0), 1.0) if whole > 0 else 0.0


ABOUT = About(
    summary="a weighted sum of age, fairshare, size, queue and priority",
    prior_knowledge="priority; with backfill also duration, as an estimate",
    algorithm="multifactor priority",
    decides_by="waiting time, GPU time that queues have used, GPUs asked for, priorities",
    dimensions="spatial and temporal",
    preemption="only to give back what a queue deserves",
    starvation="what waits rises, up to max_age; with backfill the head has a reserved start",
    source="Slurm: Yoo, Jette and Grondona, JSSPP 2003",
)
