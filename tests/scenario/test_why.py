"""What `why` answers: one YAML document a case in `why/`, worked by hand in its comment.

    case: a_rack_that_is_broken
    cluster: {racks: 2, nodes: 2, gpus: 8}    # as in test_scenarios, or `nodes:` as in a cluster file
    policy: fifo:skip=true
    steps: [...]                              # as in test_scenarios, and `without_deciding`; of jobs: see FIELDS
    ask: j
    why: {reason: topology, free: 16, needed: 16, ruled_out: {free_gpus: 2}, held: {default: 16}, block: r0 8,
          nodes_with: {8: 2}, changes: [topology any, replicas 1, end x], next: starts}

`reason` and `changes` are always compared, the rest where it is given. Each change is then made, and the next plan must
give the job its devices. `next` is the reason with the dominant one out of the way, or `starts`, `then_with` what takes
it out of the way.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_scenarios import a_job_of, begin_all, happenings
from test_scenarios import cluster as small_cluster

from builders import World, after, everything, made
from phalanx.cluster.cluster import Cluster
from phalanx.cluster.formats.native import read_cluster
from phalanx.engine.quota.shortfall import said
from phalanx.engine.turn import record
from phalanx.engine.why.change import Change, ChangeKind
from phalanx.engine.why.explain import Explanation
from phalanx.engine.why.why import why
from phalanx.protocol.event import JobSubmitted
from phalanx.protocol.reason import Reason
from phalanx.words.evidence import evidence
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Array, Job
from phalanx.workload.parallel import ParallelPlan
from phalanx.workload.scale import Metric, Scale
from phalanx.workload.share import fraction_ask, mig_ask, mps_ask
from phalanx.workload.toleration import Toleration

CASES = [
    pytest.param(case, id=f"{path.stem}-{case['case']}")
    for path in sorted((Path(__file__).parent / "why").glob("*.yaml"))
    for case in yaml.safe_load_all(path.read_text())
]
KEYS = ("case", "cluster", "policy", "steps", "ask", "why", "starts_take_time")
ANSWERS = ("reason", "free", "needed", "ruled_out", "held", "block", "nodes_with", "changes", "next", "behind")
ANSWERS += ("waits_for", "not_before_s", "unhealthy", "ends_s", "quota", "position", "queues", "priority", "then_with")


@pytest.mark.parametrize("case", CASES)
def test_why(case: dict[str, Any]) -> None:
    unknown = [key for key in case if key not in KEYS] + [key for key in case["why"] if key not in ANSWERS]
    assert not unknown, f"unknown key {unknown[0]!r}"
    world = played(case)
    before = everything(world.state)
    answer = why(world.state, case["ask"])
    assert everything(world.state) == before
    told = answers(answer, world)
    assert {key: told[key] for key in ("reason", "changes", *case["why"])} == {"changes": [], **case["why"]}
    for change in answer.changes:
        assert answer.job in made(world.journal, answer.job, change)[1].starts, f"{short(change)} does not start it"


def test_every_reason_has_two_scenarios_and_there_are_sixty() -> None:
    reasons = [case.values[0]["why"]["reason"] for case in CASES]
    few = [reason for reason in Reason if reasons.count(reason) < 2]
    assert not few, f"too few scenarios for {', '.join(few)}"
    assert len(CASES) >= 60
    assert len({case.id for case in CASES}) == len(CASES)


def test_every_kind_of_change_is_offered_somewhere() -> None:
    offered = {change.split()[0] for case in CASES for change in case.values[0]["why"].get("changes", ())}
    not_offered = {ChangeKind.RETRY, ChangeKind.AMOUNTS, ChangeKind.LIMIT, ChangeKind.GUARANTEE, ChangeKind.QUOTA}
    assert offered == {kind.value for kind in ChangeKind if kind not in not_offered}


def test_fifteen_scenarios_mix_two_causes() -> None:
    mixed = [case.id for case in CASES if case.values[0]["why"].get("next", "starts") != "starts"]
    assert len(mixed) >= 15


def played(case: dict[str, Any]) -> World:
    world = World(cluster(case["cluster"]), case.get("policy", "fifo"))
    for step in case["steps"]:
        asked = step.get("submit", {})
        submitted = [JobSubmitted(job) for name, shape in asked.items() for job in named(name, shape, step)]
        rest = {key: value for key, value in step.items() if key != "submit"}
        if step.get("without_deciding"):
            for event in submitted:
                record(world.state, world.journal, event, world.now)
            continue
        plan = world.turn(*submitted, *happenings(world, rest), after_ms=int(step.get("after_s", 0) * 1000))
        if not case.get("starts_take_time", False):
            begin_all(world, plan)
    return world


def cluster(table: dict[str, Any]) -> Cluster:
    if isinstance(table["nodes"], int):
        return small_cluster(table)
    return read_cluster(yaml.safe_dump({"version": 1, **table}), "cluster")


def named(name: str, shape: object, step: dict[str, Any]) -> list[Job]:
    """The job of a step with all its fields; an array is its members."""
    given = dict(step.get("with", {}))
    if isinstance(shape, dict):
        given |= shape
        shape = given.pop("shape")
    task = {key: given.pop(key) for key in [*given] if key in TASK_FIELDS and key not in ("cpus", "memory_gb")}
    late = {key: FIELDS[key](given.pop(key)) for key in [*given] if key in FIELDS}
    job = a_job_of(name, shape, given)
    job = replace(job, **{JOB_NAMES.get(key, key): value for key, value in late.items()})
    job = replace(job, gang=replace(job.gang, roles=tuple(with_task(role, task) for role in job.gang.roles)))
    if job.array is None:
        return [job]
    return [replace(job, id=f"{name}.{i}", array_of=name) for i in job.array.indices]


TASK_FIELDS = (*(each.name for each in fields(Task)), "fraction", "mps", "mig")
JOB_NAMES = {
    "begin_s": "begin_ms",
    "tolerates": "tolerations",
    "selects": "node_selector",
    "at_a_time": "array",
    "at_zero_of": "scale",
}
FIELDS: dict[str, Any] = {
    "begin_s": lambda seconds: 1000 * seconds,
    "after": lambda others: tuple(after(*other.split()) for other in others),
    "tolerates": lambda keys: tuple(Toleration(key) for key in keys),
    "selects": lambda labels: tuple(labels.items()),
    "at_a_time": lambda numbers: Array(tuple(range(numbers[0])), numbers[1]),
    "parallel": lambda plan: ParallelPlan(*plan),
    "at_zero_of": lambda most: Scale(Metric.QUERY, 1.0, 0, most, query="load", replicas=0),
}


def with_task(role: Role, given: dict[str, Any]) -> Role:
    made = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    asks = {"fraction": fraction_ask, "mps": mps_ask, "mig": mig_ask}
    given_shares = [(asks[key], made.pop(key)) for key in asks if key in made]
    shares = [ask(*value) if isinstance(value, tuple) else ask(value) for ask, value in given_shares]
    return replace(role, task=replace(role.task, **made, **({"share": shares[0]} if shares else {})))


def answers(answer: Explanation, world: World) -> dict[str, Any]:
    """The Explanation in the words of the tables."""
    refusal, block = answer.refusal, answer.block
    lines = evidence(answer, world.now)
    return {
        "reason": answer.reason.value if answer.reason is not None else None,
        "free": refusal.gpus_free if refusal else None,
        "needed": refusal.gpus_needed if refusal else None,
        "ruled_out": dict(refusal.ruled_out) if refusal else {},
        "held": {each.queue: each.gpus for each in answer.held},
        "ends_s": [each.expected_end_ms and each.expected_end_ms / 1000 for each in answer.holders],
        "block": f"{block.name} {block.gpus}" if block else None,
        "nodes_with": dict(answer.free),
        "unhealthy": dict(answer.unhealthy),
        "quota": quota(answer),
        **{line: lines.get(line, "") for line in ("position", "queues", "priority")},
        "behind": answer.behind.job if answer.behind else None,
        "waits_for": [each.job for each in answer.waits_for],
        "not_before_s": None if answer.not_before_ms is None else answer.not_before_ms / 1000,
        "changes": [short(change) for change in answer.changes],
        "then_with": None if answer.next is None else short(answer.next.change),
        "next": None if answer.next is None else (answer.next.reason or "starts"),
    }


def quota(answer: Explanation) -> str | None:
    """Where the quota is decided, and what is asked of how much that is left: `research 8 of 4`."""
    found = answer.quota
    if found is None:
        return None
    return f"{found.at or 'pool'} {said(found.asked, found.resource)} of {said(found.left, found.resource)}"


def short(change: Change) -> str:
    """A change in few words: its kind and the new value."""
    unit = {ChangeKind.CPUS: 1000, ChangeKind.MEMORY: 1024, ChangeKind.GPU_MEMORY: 1000, ChangeKind.DURATION: 1000}
    unit[ChangeKind.SHARE_MEMORY] = 1024
    if change.kind is ChangeKind.END:
        value = ",".join(each.job for each in change.ends)
    elif change.kind in (ChangeKind.TOPOLOGY, ChangeKind.GPU_TYPE):
        value = ",".join(change.names) or "any"
    elif change.kind in (ChangeKind.RELEASE, ChangeKind.BEGIN, ChangeKind.PASS, ChangeKind.PREEMPTIBLE):
        return change.kind.value
    elif change.names and change.kind is not ChangeKind.SHARE:
        value = ",".join(change.names)
    else:
        value = f"{change.amount / unit.get(change.kind, 1):g}"
    return f"{change.kind.value} {value}"
