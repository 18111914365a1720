"""Scenarios: tables of what happens and what must come of it, one YAML file each, worked by hand in its comment.

    cluster: {nodes: 2, gpus: 8}          # also racks: (of `nodes` nodes each), sockets:, cpus:, memory_gb:,
                                          #   gpu_memory_gb:, and queues: as in a cluster file; types: and prices:
                                          #   (an hour), one for each node; or, for unequal domains, the GPUs of
                                          #   every node: tree: [[8, 4], [2]], in racks, one deeper also in pods
    policy: fifo
    fails_with: [priority]                # under these policies the same steps must come out otherwise
    steps:
      - submit: {a: 8, b: 2x4 rack}       # NAME: GPUS or COUNTxGPUS or MIN-MAXxGPUS, then a required level
        with: {priority: 5}               # further fields of the jobs of this step; of each task: cpus, memory_gb,
                                          #   gpu_memory_gb, divisible; times: duration_s, deadline_s (on the clock of
                                          #   the table); saves: false for jobs that do not save their work
        expect: {a: n0, b: gpus}          # where it is (node or node+node), else its reason or state
      - {after_s: 10, end: [a]}           # time passes, then: done, failed, lost, end, cancel, hold, release,
        stops: [b]                        #   saved (a durable checkpoint), node: {n0: failed},
                                          #   reports: {a: [{step: 50, loss: 0.5}]} (what a job says of itself, in turn)
        starts: [c]

A step says what happens, in this order: time passes, jobs are submitted, the rest. A step in which only time passes
wakes whoever asked to be woken by then. `starts`, `stops`, `victims`, `resizes`, `suspends` and `resumes` are what the
plan says; `beside: {b: a}` with whom a job shares its turn ('': nobody), `compute: {a: 500}` how many thousandths of
a device its first task may have, `lent_gb: {a: 20}` how much memory that others hold, and `at_step: {a: true}` whether
its turns end with a step, once the plan is carried out. What is left out is not looked at. New starts are
reported done at once unless the file says `starts_take_time: true`; stops always wait for a `done`. With
`advised: true` the policy's adviser is asked, and unasked the same steps must come out otherwise.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import World, a_job, of_roles, starts, stops, within, workers
from phalanx.advice.registry import adviser
from phalanx.cluster.capacity import MB_PER_GB
from phalanx.cluster.cluster import Cluster, Health, Node
from phalanx.cluster.device import Portion
from phalanx.cluster.formats.native import read_cluster
from phalanx.cluster.queues import Queue
from phalanx.engine.turn import verify
from phalanx.policy.registry import BUILTIN, split
from phalanx.protocol.action import ActionId, Resize, Resume, Start, Suspend
from phalanx.protocol.event import (
    AttemptEnded,
    Done,
    Event,
    Failed,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobSubmitted,
    Lost,
    NodeHealthChanged,
    Outcome,
    Progress,
)
from phalanx.protocol.plan import Plan
from phalanx.workload.gang import Role
from phalanx.workload.job import Checkpointing, Job, Kind

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
TABLES = {path.stem: yaml.safe_load(path.read_text()) for path in FILES}
ADVISED = [name for name, table in TABLES.items() if table.get("advised", False)]
OTHERS = [(name, other) for name, table in TABLES.items() for other in table.get("fails_with", ())]
KEYS = ("cluster", "policy", "fails_with", "steps", "starts_take_time", "advised")
HAPPENINGS = (
    "submit",
    "after_s",
    "done",
    "failed",
    "lost",
    "end",
    "cancel",
    "hold",
    "release",
    "saved",
    "node",
    "reports",
)
CHECKS = (
    "with",
    "expect",
    "starts",
    "stops",
    "victims",
    "resizes",
    "suspends",
    "resumes",
    "beside",
    "compute",
    "lent_gb",
    "at_step",
)


@pytest.mark.parametrize("name", TABLES)
def test_scenario(name: str) -> None:
    table = TABLES[name]
    unknown = [key for key in table if key not in KEYS]
    unknown += [key for step in table["steps"] for key in step if key not in (*HAPPENINGS, *CHECKS)]
    assert not unknown, f"{name}.yaml: unknown key {unknown[0]!r}"
    play(name, table.get("policy", "fifo"))


@pytest.mark.parametrize(("name", "other"), OTHERS, ids=[f"{name}-{other}" for name, other in OTHERS])
def test_a_scenario_fails_without_what_makes_its_policy(name: str, other: str) -> None:
    with pytest.raises(AssertionError):
        play(name, other)


@pytest.mark.parametrize("name", ADVISED)
def test_a_scenario_of_advice_fails_where_nobody_advises(name: str) -> None:
    with pytest.raises(AssertionError):
        steps(name, World(cluster(TABLES[name]["cluster"]), TABLES[name]["policy"]))


@pytest.mark.parametrize("policy", BUILTIN)
def test_every_policy_has_a_scenario_that_others_fail(policy: str) -> None:
    others = [other for table in TABLES.values() if split(table["policy"])[0] == policy for other in told(table)]
    assert [other for other in others if other != policy], f"no scenario of {policy} says which policies fail it"


def test_every_scenario_beside_another_scheduler_stands_in_the_table_of_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "beside-others.md").read_text("utf-8")
    beside = ("kueue_", "volcano_capacity_", "slurm_")
    named = [name for name in re.findall(r"\(`(\w+)`\)", page) if "_" in name]
    assert sorted(named) == sorted(name for name in TABLES if name.startswith(beside))


def told(table: dict[str, Any]) -> list[str]:
    return list(table.get("fails_with", ()))


def play(name: str, policy: str) -> None:
    table = TABLES[name]
    world = World(cluster(table["cluster"]), policy)
    if table.get("advised", False) and world.state.policy.adviser:
        world.adviser = adviser(world.state.policy.adviser)
    steps(name, world)


def steps(name: str, world: World) -> None:
    table = TABLES[name]
    for number, step in enumerate(table["steps"], start=1):
        plan = world.turn(*happenings(world, step), after_ms=int(step.get("after_s", 0) * 1000))
        check(world, step, plan, f"{name}.yaml, step {number}")
        if not table.get("starts_take_time", False):
            begin_all(world, plan)
    verify(world.journal)


def begin_all(world: World, plan: Plan) -> None:
    """Reports new starts done, and starts that follow from that."""
    while begun := [Done(action.id) for action in plan.actions if isinstance(action, Start)]:
        plan = world.turn(*begun)


def cluster(table: dict[str, Any]) -> Cluster:
    if "tree" in table:
        return unequal(table)
    racks, nodes = table.get("racks", 0), table["nodes"]
    split = (("socket", table["sockets"]),) if "sockets" in table else ()
    levels = (*(["rack"] if racks else []), "node", *(level for level, _ in split))
    return Cluster(
        tuple(
            Node(
                f"n{i}",
                (f"r{i // nodes}",) if racks else (),
                table["gpus"],
                table["types"][i] if "types" in table else "",
                float(table.get("gpu_memory_gb", 0)),
                price_usd_h=table["prices"][i] if "prices" in table else 0.0,
                cpus_milli=table.get("cpus", 0) * 1000,
                memory_mb=table.get("memory_gb", 0) * MB_PER_GB,
                split=split,
            )
            for i in range(nodes * max(racks, 1))
        ),
        levels,
        queues=queues(table),
    )


def unequal(table: dict[str, Any]) -> Cluster:
    """A cluster by its tree: `[[8, 4], [2]]` is a rack of nodes with 8 and 4 GPUs, and one with 2."""
    is_in_pods = any(isinstance(part, list) for rack in table["tree"] for part in rack)
    pods = table["tree"] if is_in_pods else [table["tree"]]
    racks = [(f"p{number}", rack) for number, pod in enumerate(pods) for rack in pod]
    found = [(pod, f"r{number}", gpus) for number, (pod, rack) in enumerate(racks) for gpus in rack]
    return Cluster(
        tuple(
            Node(f"n{number}", (pod, rack) if is_in_pods else (rack,), gpus)
            for number, (pod, rack, gpus) in enumerate(found)
        ),
        (*(["pod"] if is_in_pods else []), "rack", "node"),
    )


def queues(table: dict[str, Any]) -> tuple[Queue, ...]:
    if "queues" not in table:
        return ()
    group = {"count": table["nodes"] * max(table.get("racks", 0), 1), "gpus": table["gpus"]}
    group |= {key: table[key] for key in ("cpus", "memory_gb") if key in table}
    return read_cluster(yaml.safe_dump({"nodes": [group], "queues": table["queues"]}), "queues").queues


SHAPE = re.compile(
    r"""(?:(?P<least>\d+)(?:-(?P<most>\d+))?x)?   # how many, at least and at most
    (?:(?P<gpus>\d+)                             # GPUs each, or a sub-gang each: how many, GPUs, level
    |\((?P<members>\d+)x(?P<each>\d+)\ (?P<level>\w+)\))
    (?:\ (?P<required>\w+))?""",
    re.VERBOSE,
)


def a_job_of(name: str, shape: object, fields: dict[str, Any]) -> Job:
    """A job from its shape in words: `2`, `4x8 rack`, `1-4x2`, `3x(2x8 rack)`."""
    found = SHAPE.fullmatch(str(shape))
    assert found, f"job {name}: {shape!r} is no shape"
    least = int(found["least"] or 1)
    most = int(found["most"] or least)
    # As the reader of job files has it: a plain number is both the request and the limit.
    cpus_milli, memory_mb = int(fields.pop("cpus", 0) * 1000), int(fields.pop("memory_gb", 0) * MB_PER_GB)
    task = {
        "cpus_milli": cpus_milli,
        "cpus_limit_milli": cpus_milli,
        "memory_mb": memory_mb,
        "memory_limit_mb": memory_mb,
        "divisible": fields.pop("divisible", False),
        "gpu_memory_gb": float(fields.pop("gpu_memory_gb", 0)),
    }
    fields |= {f"{key[:-2]}_ms": 1000 * fields.pop(key) for key in ("duration_s", "deadline_s") if key in fields}
    if "kind" in fields:
        fields["kind"] = Kind(fields["kind"])
    if "saves" in fields:
        fields["checkpoint"] = Checkpointing(saves=fields.pop("saves"))
    if "labels" in fields:
        fields["labels"] = tuple(fields["labels"].items())
    if found["gpus"]:
        return a_job(name, int(found["gpus"]), (least, most), found["required"] or "", task=task, **fields)
    inner = workers(int(found["members"]), int(found["each"]))
    role = Role("replica", least, most, members=(inner,), topology=within(found["level"]))
    return of_roles(name, role, required=found["required"] or "", **fields)


def happenings(world: World, step: dict[str, Any]) -> list[Event]:
    fields = step.get("with", {})
    events: list[Event] = [
        JobSubmitted(a_job_of(name, shape, dict(fields))) for name, shape in step.get("submit", {}).items()
    ]
    events += [Done(asked(world, name)) for name in step.get("done", ())]
    events += [Failed(asked(world, name), "as the table says") for name in step.get("failed", ())]
    events += [Lost(asked(world, name)) for name in step.get("lost", ())]
    events += [AttemptEnded(name, world.job(name).attempts, Outcome.SUCCEEDED) for name in step.get("end", ())]
    events += [JobCancelled(name) for name in step.get("cancel", ())]
    events += [JobHeld(name) for name in step.get("hold", ())]
    events += [JobReleased(name) for name in step.get("release", ())]
    saved = {name: world.job(name) for name in step.get("saved", ())}
    for name, record in saved.items():
        assert record.attempt is not None
        events.append(Progress(name, record.attempts, durable_step=record.attempt.durable_step + 1))
    for name, told in step.get("reports", {}).items():
        events += [a_report(name, world.job(name).attempts, dict(each)) for each in told]
    events += [NodeHealthChanged(name, Health(health)) for name, health in step.get("node", {}).items()]
    return events


def a_report(name: str, attempt: int, told: dict[str, Any]) -> Progress:
    """What a job says of itself: its step and memory, and the rest as metrics."""
    step, memory_gb = told.pop("step", 0), float(told.pop("memory_gb", 0))
    return Progress(name, attempt, step, memory_gb=memory_gb, metrics={key: float(told[key]) for key in told})


def asked(world: World, name: str) -> ActionId:
    """What the world was last asked for a job."""
    asks = world.asks(name)
    assert asks, f"nothing is asked for {name}"
    return asks[-1].id


def check(world: World, step: dict[str, Any], plan: Plan, place: str) -> None:
    told = {
        "starts": starts(plan),
        "stops": sorted(stops(plan)),
        "victims": {claim.job: sorted(key.rpartition("/")[0] for key in claim.victims) for claim in plan.claims},
        "resizes": {a.id.job: len(a.placement.slots) for a in plan.actions if isinstance(a, Resize)},
        "suspends": [a.id.job for a in plan.actions if isinstance(a, Suspend)],
        "resumes": [a.id.job for a in plan.actions if isinstance(a, Resume)],
        "beside": {name: portion(world, name).beside for name in step.get("beside", {})},
        "compute": {name: portion(world, name).compute_permille for name in step.get("compute", {})},
        "lent_gb": {name: portion(world, name).lent_mb / MB_PER_GB for name in step.get("lent_gb", {})},
        "at_step": {name: portion(world, name).at_step for name in step.get("at_step", {})},
    }
    for what, found in told.items():
        if what in step:
            expected = sorted(step[what]) if what == "stops" else step[what]
            assert found == expected, f"{place}: {what}"
    for name, expected in step.get("expect", {}).items():
        assert situation(world, name, str(expected)) == str(expected), f"{place}: {name}"


def portion(world: World, name: str) -> Portion:
    """The part of a device that the first task of a job holds."""
    attempt = world.job(name).attempt
    assert attempt is not None, f"{name} has no devices"
    found = attempt.bookings[0].portion
    assert found is not None, f"{name} has whole devices"
    return found


def situation(world: World, name: str, like: str) -> str:
    """Where a job is, or why it waits, in the words of the table: `n0`, `n0:4+n1:2` if GPUs are counted, `gpus`."""
    record = world.job(name)
    if record.final is not None:
        return record.final.value
    if record.attempt is None or record.attempt.waits:
        return str(world.reason(name))
    found = world.where(name)
    return "+".join(f"{node}:{len(found[node])}" if ":" in like else node for node in sorted(found))
