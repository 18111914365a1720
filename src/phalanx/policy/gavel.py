"""gavel: shares of unlike GPUs by an objective, realised in rounds (Narayanan et al., OSDI 2020).

A solver says which share X of its time each job should have on each GPU type (`phalanx.advice.gavel`). At the start of
a round the jobs that are furthest behind their shares are targeted at a type; a job that runs there already keeps its
place, and jobs in the way are preempted. What is left free goes to any other job that fits, on any type.

All that the solver said comes as an `Advice` whose entries are

    type NAME       number of a GPU type; NAME/2 is half a GPU of it
    share TYPE JOB  X: the share of its time that the job should have on the type
    owed JOB        the work by which the job is behind its shares, in milliseconds of a V100
    rank JOB        its place in the order, the furthest behind first
    target JOB      the type that the job is to run on in this round; -1 if it needs several
    stray JOB       the job runs elsewhere: which of all attempts it is that does
    move JOB        the same, of one that is to be stopped so that it can start on its target
    only JOB        the type that alone the job may take, since any other would do too little for its price
    kept            no solution was found, or not in time, or it could not be asked: the last answer holds for a round
    calm            every job is targeted, so that a new job is looked at at once
    rest            nothing will change before something happens, so that no round need follow
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from phalanx.policy.about import About
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Memory, Policy, Targets
from phalanx.policy.portions import with_share
from phalanx.policy.view import JobView, Moment
from phalanx.protocol.event import (
    Accepted,
    Advice,
    AttemptEnded,
    ClusterDefined,
    Event,
    JobCancelled,
    JobReleased,
    JobSubmitted,
    Outcome,
    Progress,
    TimerDue,
)
from phalanx.workload.gang import Gang, Role
from phalanx.workload.pairing import HALF, HALF_MARK

TARGETED, HOLDS, WAITS = range(3)
"""Targeted jobs go first. Other running jobs yield only to those, and other pending jobs take only what is free."""

NEWCOMER = -1
"""The rank of a job that no round has seen yet: it has had nothing so far, so no job is further behind."""


OBJECTIVES = ("fairness", "makespan", "finish_time", "cost")


def gavel(parameters: Parameters) -> Policy:
    """`round` is the length of a round in seconds, `objective` what shares are for; `timeout` bounds the solver."""
    round_ms = 1000 * parameters.integer("round", default=360, least=1)
    goal = {
        "objective": parameters.choice("objective", OBJECTIVES),
        "water_filling": parameters.boolean("water_filling", default=True),
        "space_sharing": parameters.boolean("space_sharing", default=False),
        "timeout_ms": parameters.duration_ms("timeout", "1m"),
    }

    def observe(memory: Memory, event: Event, now: int) -> None:
        if "ranks" not in memory:
            memory.update(_nothing_known(round_ms), goal=goal)
        match event:
            case ClusterDefined() | Accepted() | Progress():
                pass
            case Advice():
                _take(memory, event.body, now)
            case JobSubmitted():
                memory["jobs"][event.job.id] = None
                _arrive(memory, now)
            case AttemptEnded() if event.outcome is Outcome.LOST:
                _wake(memory, now)
            case AttemptEnded() | JobCancelled():
                _forget(memory, event.job, now)
            case TimerDue() if memory["next_ms"] is not None and memory["next_ms"] <= now:
                # There is no adviser here. There will be no rounds, but jobs that fit still run.
                memory["began_ms"], memory["next_ms"] = now, None
            case TimerDue() | JobReleased():
                _expect_round(memory, max(now, memory["began_ms"] + round_ms))
            case _:
                _wake(memory, now)

    return Policy(
        "gavel",
        order=order,
        targets=Targets.RANK,
        shape=shape,
        changes=changes,
        due=due,
        observe=observe,
        next_wakeup=next_wakeup,
        adviser="gavel",
        parameters=parameters.given,
        about=ABOUT,
    )


def order(job: JobView, at: Moment) -> Key:
    """Targeted jobs, then jobs that hold devices, then pending ones; the furthest behind first."""
    memory = _memory(at)
    rank = memory["ranks"].get(job.job.id, NEWCOMER)
    if job.job.id in memory["targets"] and not _is_wide(job, memory) and not _is_stray(job, memory):
        return (TARGETED, rank, job.number)
    return (HOLDS if job.has_devices else WAITS, rank, job.number)


def shape(job: JobView, at: Moment) -> Gang:
    """The gang on its target type, else as it was submitted. A job that runs stays unless told to move."""
    memory = _memory(at)
    stays = job.has_devices and memory["moves"].get(job.job.id) != job.opened[1]
    target = None if stays else _confining(job, memory)
    return placed_on(job.job.gang, target) if target is not None else job.job.gang


def changes(job: JobView, at: Moment) -> int | None:
    """A targeted job that is still pending after the round takes any type: no GPU idles for a target."""
    memory = _memory(at)
    if job.has_devices or memory["goal"]["objective"] == "cost":
        return None
    return at.now + 1 if _confining(job, memory) is not None else None


def due(job: JobView, at: Moment) -> None:
    """From now on, and until the next round, the job takes any type."""
    if not job.has_devices:
        job.marks["wide"] = at.memory["round"]


def next_wakeup(memory: Mapping[str, Any], now: int) -> int | None:
    """When the next round starts; None while nothing but an event could change anything."""
    at_ms: int | None = memory.get("next_ms")
    return at_ms


def placed_on(gang: Gang, target: str) -> Gang:
    """The gang on GPUs of one type, or on halves of them."""
    name = target.removesuffix(HALF_MARK)
    gang = confined(gang, name) if name else gang
    return with_share(gang, HALF) if target.endswith(HALF_MARK) else gang


@lru_cache(maxsize=4096)
def confined(gang: Gang, gpu_type: str) -> Gang:
    """The gang on GPUs of one type."""
    return replace(gang, roles=tuple(_confined(role, gpu_type) for role in gang.roles))


def _confined(role: Role, gpu_type: str) -> Role:
    if role.members:
        return replace(role, members=tuple(_confined(member, gpu_type) for member in role.members))
    return replace(role, task=replace(role.task, gpu_types=(gpu_type,))) if role.task.gpus else role


def _confining(job: JobView, memory: Mapping[str, Any]) -> str | None:
    """The type that a job is confined to now; None if it may have any."""
    types = memory["types"]
    if job.job.id in memory["only"]:
        return str(types[memory["only"][job.job.id]])
    target: int = memory["targets"].get(job.job.id, -1)
    return None if target < 0 or len(types) == 1 or _is_wide(job, memory) else str(types[target])


def _is_wide(job: JobView, memory: Mapping[str, Any]) -> bool:
    """Whether the job found no place on its target in this round."""
    return bool(job.marks.get("wide") == memory["round"])


def _is_stray(job: JobView, memory: Mapping[str, Any]) -> bool:
    """Whether the job runs, since before this round, where it is not targeted at."""
    return job.has_devices and bool(memory["strays"].get(job.job.id) == job.opened[1])


def _memory(at: Moment) -> Mapping[str, Any]:
    """What is remembered; before anything was observed, nothing."""
    return at.memory if "ranks" in at.memory else NOTHING


def _nothing_known(round_ms: int) -> Memory:
    return {
        "round_ms": round_ms,
        "round": 0,
        "began_ms": -round_ms,
        "next_ms": None,
        "calm": True,
        "jobs": {},
        "types": [],
        "kept": 0,
        "goal": {"objective": OBJECTIVES[0]},
        **_no_answer(),
    }


def _no_answer() -> Memory:
    return {"shares": {}, "owed": {}, "ranks": {}, "targets": {}, "strays": {}, "moves": {}, "only": {}}


def _take(memory: Memory, body: Mapping[str, float], now: int) -> None:
    """Takes a round's answer in place of the last one."""
    if "kept" in body:
        memory["kept"] += 1
        memory["next_ms"] = now + memory["round_ms"]
        return
    answer = _no_answer()
    shares, owed, ranks, targets, strays, moves, only = answer.values()
    types: dict[int, str] = {}
    for entry, value in body.items():
        what, _, rest = entry.partition(" ")
        match what:
            case "share":
                number, _, job = rest.partition(" ")
                shares.setdefault(job, {})[int(number)] = value
            case "owed":
                owed[rest] = value
            case "rank":
                ranks[rest] = int(value)
                memory["jobs"][rest] = None
            case "target":
                targets[rest] = int(value)
            case "stray":
                strays[rest] = int(value)
            case "move":
                moves[rest] = int(value)
            case "only":
                only[rest] = int(value)
            case "type":
                types[int(value)] = rest
    memory.update(answer)
    memory["types"] = [name for _, name in sorted(types.items())]
    memory["round"] += 1
    memory["began_ms"] = now
    memory["calm"] = "calm" in body
    memory["next_ms"] = None if "rest" in body else now + memory["round_ms"]


def _arrive(memory: Memory, now: int) -> None:
    """While there is enough for all, a new job is looked at at once; else when the round is over."""
    if memory["calm"]:
        memory["next_ms"] = now
    _expect_round(memory, max(now, memory["began_ms"] + memory["round_ms"]))


def _expect_round(memory: Memory, at_ms: int) -> None:
    """Has a round start at a moment, unless one is to start anyway."""
    if memory["next_ms"] is None:
        memory["next_ms"] = at_ms


def _wake(memory: Memory, now: int) -> None:
    """Something happened that a job may have to wait for: the next round starts when the last one is over."""
    if memory["jobs"]:
        _expect_round(memory, max(now, memory["began_ms"] + memory["round_ms"]))


def _forget(memory: Memory, job: str, now: int) -> None:
    """A job has ended, or will. One that is tried again comes back with a timer."""
    memory["jobs"].pop(job, None)
    if memory["jobs"]:
        _wake(memory, now)
    else:
        memory["next_ms"] = None


NOTHING: Mapping[str, Any] = _nothing_known(0)

ABOUT = About(
    summary="shares of unlike GPUs, max-min fair or by another objective, in rounds",
    prior_knowledge="speed of each model on each GPU type; for some objectives duration, deadline, price",
    foresight=True,
    algorithm="linear program",
    decides_by="work due over work done",
    dimensions="spatial and temporal",
    preemption="yes, by checkpoint, between rounds",
    starvation="none: every job has a share",
    placement="by GPU type",
    source="Narayanan et al., OSDI 2020",
)
