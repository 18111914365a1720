"""Fleets: the GPU types of a cluster, where jobs lie, how fast jobs of a kind were there, and where each is best.

How fast a job is on a type is learned from what jobs of its kind report while they run there. A kind is what has the
same `model` label, or else comes from the same user under the same name, figures aside. Until that is known of a type,
the catalogue's peak figures are taken, whatever the model. Where each job is best follows from that and from what
all jobs make of the types (`policy.market`). Where there is only one type, none of this is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, log
from typing import Any, NamedTuple

from phalanx.cluster.cluster import Health, Node
from phalanx.placement.placement import Placement
from phalanx.policy.company import reported_step_ms
from phalanx.policy.market import Group, prices
from phalanx.policy.policy import Memory
from phalanx.protocol.action import Resize, Stop
from phalanx.protocol.event import (
    AttemptEnded,
    ClusterChanged,
    ClusterDefined,
    Event,
    Failed,
    JobCancelled,
    JobChanged,
    JobSubmitted,
    NodeHealthChanged,
    Outcome,
    Progress,
    TimerDue,
)
from phalanx.protocol.plan import Plan
from phalanx.workload.family import BASE, relative_speed
from phalanx.workload.job import Job, Kind
from phalanx.workload.sizes import leaves

REPORTS_COUNTED = 8
"""About so many of the last reports make up what is known of a kind on a type."""

KINDS_MAX = 10_000
"""Kinds of jobs that are remembered; the one that was reported of longest ago is forgotten first."""

PRICES_MS = 60_000
"""Prices are worked out anew when jobs came or went, but no more often than this."""

ROUND_MS = 600_000
"""How often it is looked at whether a running job should go to another type, after something has happened."""

SETTLED_MS = 600_000
"""How long a job has been where it is before it is sent elsewhere."""

WORTH_IT = log(1.25)
"""By how much a job must be faster elsewhere, prices counted, for the way to be worth it: a rule of ours."""

DIGITS = 1
"""Kinds whose logarithms of speed are as near as this are one group: the market takes as long as there are groups."""

MODEL = "model"


class Present(NamedTuple):
    """A pending or running job: what it is like, its GPUs, the types it may use (none: any), whether it may move."""

    kind: str
    gpus: int
    types: tuple[str, ...]
    moves: bool


class Lies(NamedTuple):
    """Where a job is: the attempt, its GPU type, its node if it is on one, its GPUs, whether they are whole, and since
    when.
    """

    attempt: int
    gpu_type: str
    node: str
    gpus: int
    whole: bool
    since_ms: int


def observe_fleet(memory: Memory, event: Event, now: int) -> None:
    """Folds an event in: which jobs are here, and how fast they say that they are."""
    if isinstance(event, Progress) and "types" in memory:
        _learn(memory, event)
    observe_presence(memory, event, now)


def observe_presence(memory: Memory, event: Event, now: int) -> None:
    """Folds an event in: which jobs are here, on which nodes."""
    if isinstance(event, ClusterDefined | ClusterChanged):
        _take_cluster(memory, event.cluster.nodes)
    if "types" not in memory:
        return
    match event:
        case JobSubmitted() | JobChanged():
            memory["present"][event.job.id] = _present(event.job)
            _stir(memory, now)
        case AttemptEnded() if event.outcome is Outcome.LOST:
            memory["lies"].pop(event.job, None)
        case AttemptEnded() | JobCancelled():
            memory["lies"].pop(event.job, None)
            memory["present"].pop(event.job, None)
            _stir(memory, now)
        case Failed():
            memory["lies"].pop(event.action.job, None)
        case NodeHealthChanged():
            memory["closed"].pop(event.node, None)
            if event.health is not Health.HEALTHY:
                memory["closed"][event.node] = None
            _stir(memory, now)
        case TimerDue() if memory["next_ms"] is not None and memory["next_ms"] <= now:
            memory["began_ms"] = now
            memory["moves"] = dict(moves(memory, now))
            memory["next_ms"] = now + ROUND_MS if _may_move_later(memory, now) else None


def observe_seats(memory: Memory, plan: Plan, now: int) -> None:
    """Folds a Plan in: which jobs are placed where, and which leave."""
    if "types" not in memory:
        return
    lies = memory["lies"]
    for key in plan.withdrawn:
        lies.pop(key.rpartition("/")[0], None)
    for action in plan.actions:
        match action:
            case Stop():
                lies.pop(action.id.job, None)
                memory["moves"].pop(action.id.job, None)
            case Resize():
                _seat(memory, action.id.job, action.id.attempt, action.placement, now)
    for claim in plan.claims:
        _seat(memory, claim.job, claim.attempt, claim.placement, now)


def next_look(memory: Mapping[str, Any], now: int) -> int | None:
    """When it is looked at next whether any job should move; None while nothing has happened."""
    at_ms: int | None = memory.get("next_ms")
    return at_ms


def preferred(memory: Mapping[str, Any], job: Job) -> list[str]:
    """The GPU types of the cluster in the order in which a job should be tried on them; none if there is one only."""
    if "types" not in memory:
        return []
    types, worth = memory["types"], memory["prices"]
    paces = speeds(memory, kind_of(job), job.gang.gpus_min)
    # Where it is all the same, as far as prices are exact, the faster type.
    return sorted(types, key=lambda name: (round(worth[name] - paces[name], DIGITS), -paces[name]))


def speeds(memory: Mapping[str, Any], kind: str, gpus: int) -> dict[str, float]:
    """The logarithm of how fast a job is on each type, against anything: only their differences mean something."""
    types: Mapping[str, float] = memory["types"]
    if not kind or kind not in memory["paces"]:
        return dict(types)
    by_gpus = memory["paces"][kind]
    own = {name: pace for name, (_, pace) in by_gpus.get(gpus, {}).items() if name in types}
    known = list(own) or list(types)[:1]
    base = {name: own.get(name, 0.0) for name in known}
    found = {}
    for name in types:
        if name in own:
            found[name] = own[name]
        else:
            found[name] = sum(pace + _apart(memory, by_gpus, other, name) for other, pace in base.items()) / len(base)
    return found


def _apart(memory: Mapping[str, Any], by_gpus: Mapping[int, Mapping[str, tuple[int, float]]], a: str, b: str) -> float:
    """How much faster a kind is on a type than on another: as jobs of other sizes say, else by the catalogue."""
    told = [paces[b][1] - paces[a][1] for paces in by_gpus.values() if a in paces and b in paces]
    prior: Mapping[str, float] = memory["types"]
    return sum(told) / len(told) if told else prior[b] - prior[a]


def moves(memory: Mapping[str, Any], now: int) -> Iterator[tuple[str, tuple[int, str]]]:
    """Running jobs that should go to GPUs that are free, each with its attempt and their type.

    The job that gains most chooses first.
    """
    free = _free(memory)
    if not any(free.values()):
        return
    offers = []
    for job, lies in memory["lies"].items():
        present: Present | None = memory["present"].get(job)
        if present is None or not present.moves or not lies.node or now - lies.since_ms < SETTLED_MS:
            continue
        paces, worth = speeds(memory, present.kind, lies.gpus), memory["prices"]
        for name in memory["types"]:
            faster = paces[name] - paces[lies.gpu_type]
            gain = round(faster - worth[name] + worth[lies.gpu_type], DIGITS)
            # Where prices say that it is all the same, a job that is faster there takes what is left.
            if gain >= 0 and max(gain, faster) > WORTH_IT and (not present.types or name in present.types):
                offers.append((-gain, -faster, job, name))
    taken: dict[str, None] = {}
    for _, _, job, name in sorted(offers):
        lies = memory["lies"][job]
        room = [node for node, gpus in free.items() if gpus >= lies.gpus and memory["nodes"][node][0] == name]
        if room and job not in taken:
            taken[job] = None
            free[min(room, key=lambda node: free[node])] -= lies.gpus
            free[lies.node] += lies.gpus
            yield job, (lies.attempt, name)


def _may_move_later(memory: Mapping[str, Any], now: int) -> bool:
    """Whether a job has not been long enough where it is to be sent to what is free."""
    lately = any(now - lies.since_ms < SETTLED_MS for lies in memory["lies"].values())
    return lately and any(_free(memory).values())


def bound_type(memory: Mapping[str, Any], job: str) -> str | None:
    """The type that a running job is to go to; None if it is to stay."""
    attempt, name = memory.get("moves", {}).get(job, (0, None))
    lies: Lies | None = memory["lies"].get(job) if name is not None else None
    return name if lies is not None and lies.attempt == attempt else None


def kind_of(job: Job) -> str:
    """What jobs are compared by: their model, or which user sends them under which name; empty if neither is known."""
    model = next((value for key, value in job.labels if key == MODEL), "")
    if model:
        return f"model {model}"
    stem = "".join(each for each in job.name if not each.isdigit())
    return f"user {job.user} {stem}" if job.user and stem else ""


def _take_cluster(memory: Memory, nodes: Sequence[Node]) -> None:
    """Takes note of the types of a cluster; of one type only there is nothing to choose."""
    types = dict.fromkeys(node.gpu_type for node in nodes if node.gpus)
    if len(types) < 2:
        for key in ("types", "nodes", "prices", "present", "lies", "paces", "closed", "moves"):
            memory.pop(key, None)
        memory["next_ms"] = None
        return
    memory["types"] = {name: log(relative_speed(name, BASE)) for name in types}
    memory["nodes"] = {node.name: (node.gpu_type, node.gpus) for node in nodes if node.gpus}
    memory["prices"] = dict.fromkeys(types, 0.0)
    for key in ("present", "lies", "paces", "closed", "moves"):
        memory.setdefault(key, {})
    memory.setdefault("next_ms", None)
    memory["priced_ms"] = memory["began_ms"] = -ROUND_MS


def _present(job: Job) -> Present:
    tasks = [role.task for role, _ in leaves(job.gang.roles) if role.task.gpus]
    named = [task.gpu_types for task in tasks]
    types = tuple(dict.fromkeys(name for each in named for name in each)) if all(named) else ()
    fixed = not job.gang.elastic and all(task.share is None for task in tasks)
    moves = fixed and job.preemptible and job.movable and job.checkpoint.saves and job.kind is Kind.TRAINING
    return Present(kind_of(job), job.gang.gpus_min, types, moves)


def _seat(memory: Memory, job: str, attempt: int, placement: Placement, now: int) -> None:
    """Takes note of where a job lies. One that lies on several types is nowhere in particular."""
    gpus: dict[str, int] = {}
    for slot in placement.slots:
        if slot.devices:
            gpus[slot.node] = gpus.get(slot.node, 0) + len(slot.devices)
    types = dict.fromkeys(memory["nodes"][node][0] for node in gpus if node in memory["nodes"])
    memory["lies"].pop(job, None)
    if len(types) == 1:
        node = next(iter(gpus)) if len(gpus) == 1 else ""
        whole = all(slot.portion is None for slot in placement.slots)
        memory["lies"][job] = Lies(attempt, next(iter(types)), node, sum(gpus.values()), whole, now)


def _learn(memory: Memory, report: Progress) -> None:
    """Takes note of the pace of a job where it lies. What makes no sense, or comes late, is left out."""
    lies: Lies | None = memory["lies"].get(report.job)
    present: Present | None = memory["present"].get(report.job)
    step_ms = reported_step_ms(report)
    if lies is None or not lies.whole or lies.attempt != report.attempt or not 0 < step_ms < inf:
        return
    if present is None or not present.kind:
        return
    pace = log(max(report.metrics.get("batch", 1.0), 1.0) / step_ms)
    kinds = memory["paces"]
    by_gpus = kinds[present.kind] = kinds.pop(present.kind, {})
    if len(kinds) > KINDS_MAX:
        del kinds[next(iter(kinds))]
    by_type = by_gpus.setdefault(lies.gpus, {})
    count, mean = by_type.get(lies.gpu_type, (0, 0.0))
    count = min(count + 1, REPORTS_COUNTED)
    by_type[lies.gpu_type] = (count, mean + (pace - mean) / count)


def _stir(memory: Memory, now: int) -> None:
    """Jobs or nodes came or went: prices may be others, and it is looked at soon whether a job should move."""
    if now - memory["priced_ms"] >= PRICES_MS:
        memory["priced_ms"] = now
        memory["prices"] = _prices(memory)
    if memory["next_ms"] is None:
        memory["next_ms"] = max(now, memory["began_ms"] + ROUND_MS)


def _prices(memory: Mapping[str, Any]) -> dict[str, float]:
    types = list(memory["types"])
    wanted: dict[tuple[str, int, tuple[str, ...]], int] = {}
    for present in memory["present"].values():
        key = (present.kind, present.gpus, present.types)
        wanted[key] = wanted.get(key, 0) + present.gpus
    groups: dict[tuple[float, ...], int] = {}
    for (kind, gpus, allowed), count in wanted.items():
        paces = speeds(memory, kind, gpus)
        best = max(paces.values())
        values = tuple(round(paces[name] - best, DIGITS) if not allowed or name in allowed else -inf for name in types)
        if any(value > -inf for value in values):
            groups[values] = groups.get(values, 0) + count
    gpus_of = dict.fromkeys(types, 0)
    for node, (name, gpus) in memory["nodes"].items():
        gpus_of[name] += 0 if node in memory["closed"] else gpus
    found = prices([Group(values, gpus) for values, gpus in groups.items()], list(gpus_of.values()))
    return dict(zip(types, found, strict=True))


def _free(memory: Mapping[str, Any]) -> dict[str, int]:
    """Free GPUs by node, as far as that is known from plans."""
    free = {node: 0 if node in memory["closed"] else gpus for node, (_, gpus) in memory["nodes"].items()}
    for lies in memory["lies"].values():
        if lies.node in free:
            free[lies.node] -= lies.gpus
    return free
