"""themis: finish-time fairness by leases and auctions (Mahajan et al., NSDI 2020).

ρ of a job is how long it takes here over how long it would take alone on its equal part of the cluster. A job that gets
devices has them for a lease. When leases end, the devices are auctioned among jobs that fare worst; what none wins
goes to the rest by lot. The auctions are held by `phalanx.advice.themis`; what it says comes as an `Advice` of entries

    lease JOB   until when a winner has its devices, in milliseconds
    rank JOB    its place: winners first, then the rest by lot
    up JOB      the job's lease has ended and it won nothing: which of all attempts it is that may be preempted
    rho JOB     how unfairly a bidder fares
    next        when the next lease ends; without it no auction takes place before something happens
    kept        no auction could be held: what the last one came to holds until the next
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from phalanx.policy.about import About
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Memory, Policy, Targets
from phalanx.policy.view import JobView, Moment
from phalanx.protocol.event import (
    Accepted,
    Advice,
    AttemptEnded,
    ClusterDefined,
    Done,
    Event,
    JobCancelled,
    JobSubmitted,
    Outcome,
    Progress,
    TimerDue,
)

HOLDS, WON, UP, WAITS = range(4)
"""A job with a lease stays. One that won goes before those whose lease has ended, and these before the pending ones."""

NEWCOMER = -1
"""The rank of a job that no auction has seen yet: it takes what lies idle before those that have been drawn by lot."""

PAUSES = 20
"""So many auctions a lease can be divided by at most."""

MEDIAN = 500


@dataclass(frozen=True, slots=True)
class Rule:
    """How auctions are held. `filter_permille` of the jobs whose devices are up do not bid: those that fare best."""

    lease_ms: int
    filter_permille: int
    payments: bool

    def bidders(self, count: int) -> int:
        """How many of so many bid: at least one."""
        return max(ceil(count * (1000 - self.filter_permille) / 1000), min(count, 1))

    @property
    def pause_ms(self) -> int:
        """How long there is no auction after one."""
        return max(self.lease_ms // PAUSES, 1)


def themis(parameters: Parameters) -> Policy:
    """`lease` is how long devices are had for; `filter` percent fare too well to bid; `payments` shorten leases."""
    rule = Rule(
        parameters.duration_ms("lease", "20m"),
        10 * parameters.integer("filter", default=80, least=0, most=100),
        parameters.boolean("payments", default=True),
    )

    def observe(memory: Memory, event: Event, now: int) -> None:
        if "ranks" not in memory:
            memory.update(_nothing_known(rule))
        match event:
            case ClusterDefined() | Accepted() | Progress():
                pass
            case Advice():
                _take(memory, event.body, now)
            case JobSubmitted():
                memory["jobs"][event.job.id] = None
                _expect(memory, rule, now)
            case AttemptEnded() | JobCancelled():
                if isinstance(event, JobCancelled) or event.outcome is Outcome.SUCCEEDED:
                    memory["jobs"].pop(event.job, None)
                _expect(memory, rule, now)
            case TimerDue() if memory["next_ms"] is not None and memory["next_ms"] <= now:
                # There is no adviser here. There will be no auctions, but jobs that fit still run.
                memory["began_ms"], memory["next_ms"] = now, None
            case Done():
                pass
            case _:
                _expect(memory, rule, now)

    return Policy(
        "themis",
        order=order,
        targets=Targets.RANK,
        observe=observe,
        next_wakeup=next_wakeup,
        estimate_permille=MEDIAN,
        adviser="themis",
        parameters=parameters.given,
        about=ABOUT,
    )


def order(job: JobView, at: Moment) -> Key:
    """Jobs that hold a lease, that won one, whose lease has ended, and that wait."""
    memory = at.memory
    name = job.job.id
    rank = memory["ranks"].get(name, NEWCOMER) if memory else NEWCOMER
    if job.has_devices:
        return (UP if memory and memory["up"].get(name) == job.opened[1] else HOLDS, rank, job.number)
    return (WON if memory and name in memory["leases"] else WAITS, rank, job.number)


def next_wakeup(memory: Mapping[str, Any], now: int) -> int | None:
    """When the next auction takes place; None while nothing but an event could change anything."""
    at_ms: int | None = memory.get("next_ms")
    return at_ms


def _nothing_known(rule: Rule) -> Memory:
    return {
        "rule": asdict(rule),
        "round": 0,
        "began_ms": -rule.lease_ms,
        "next_ms": None,
        "jobs": {},
        "ranks": {},
        "leases": {},
        "up": {},
        "kept": 0,
    }


def _take(memory: Memory, body: Mapping[str, float], now: int) -> None:
    """Takes what an auction came to. Leases that run on are kept; ranks are those of this auction."""
    if "kept" in body:
        memory["kept"] += 1
        memory["next_ms"] = now + Rule(**memory["rule"]).pause_ms if memory["jobs"] else None
        return
    memory["leases"] = {job: until for job, until in memory["leases"].items() if until > now}
    memory["ranks"], memory["up"] = {}, {}
    for entry, value in body.items():
        what, _, job = entry.partition(" ")
        match what:
            case "lease":
                memory["leases"][job] = int(value)
            case "rank":
                memory["ranks"][job] = int(value)
            case "up":
                memory["up"][job] = int(value)
    memory["round"] += 1
    memory["began_ms"] = now
    memory["next_ms"] = int(body["next"]) if "next" in body else None


def _expect(memory: Memory, rule: Rule, now: int) -> None:
    """Devices may have come free, or a job has none: an auction, unless one has just been."""
    if memory["jobs"]:
        at_ms = max(now, memory["began_ms"] + rule.pause_ms)
        memory["next_ms"] = at_ms if memory["next_ms"] is None else min(memory["next_ms"], at_ms)


ABOUT = About(
    summary="devices are leased, and auctioned among the jobs that fare worst",
    prior_knowledge="duration; of jobs that say none, that of their like",
    foresight=True,
    algorithm="auction with partial allocation",
    decides_by="finish-time fairness: time here over time on an equal part",
    dimensions="spatial and temporal",
    preemption="yes, by checkpoint, when leases end",
    starvation="none: pending jobs fare worse and worse, and bid",
    placement="packed",
    source="Mahajan et al., NSDI 2020",
)
