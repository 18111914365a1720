"""Scenarios: tables of what happens and what must come of it, one YAML file each, worked by hand in its comment.

    cluster: {nodes: 2, gpus: 8}          # also racks: (of `nodes` nodes each), sockets:, cpus:
    policy: fifo
    steps:
      - submit: {a: 8, b: 2x4 rack}       # NAME: GPUS or COUNTxGPUS or MIN-MAXxGPUS, then a required level
        with: {priority: 5}               # further fields of the jobs of this step
        expect: {a: n0, b: gpus}          # where it is (node or node+node), else its reason or state
      - {after_s: 10, end: [a]}           # time passes, then: done, failed, lost, end, cancel, hold, release,
        stops: [b]                        #   saved (a durable checkpoint), node: {n0: failed}
        starts: [c]

A step says what happens, in this order: time passes, jobs are submitted, the rest. `starts`, `stops`, `victims` and
`resizes` are what the plan says; left out, they are not looked at. New starts are reported done at once unless the file
says `starts_take_time: true`; stops always wait for a `done`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import World, a_job, of_roles, starts, stops, within, workers
from phalanx.cluster.cluster import Cluster, Health, Node
from phalanx.engine.action import Resize, Start
from phalanx.engine.event import (
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
from phalanx.engine.plan import Plan
from phalanx.engine.turn import verify
from phalanx.workload.gang import Role
from phalanx.workload.job import Job, Kind

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
HAPPENINGS = ("submit", "after_s", "done", "failed", "lost", "end", "cancel", "hold", "release", "saved", "node")
CHECKS = ("with", "expect", "starts", "stops", "victims", "resizes")


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_scenario(path: Path) -> None:
    table = yaml.safe_load(path.read_text())
    world = World(cluster(table["cluster"]), table.get("policy", "fifo"))
    for number, step in enumerate(table["steps"], start=1):
        unknown = [key for key in step if key not in (*HAPPENINGS, *CHECKS)]
        assert not unknown, f"{path.name}, step {number}: unknown key {unknown[0]!r}"
        plan = world.turn(*happenings(world, step), after_ms=int(step.get("after_s", 0) * 1000))
        check(world, step, plan, f"{path.name}, step {number}")
        if not table.get("starts_take_time", False):
            begin_all(world, plan)
    verify(world.journal)


def begin_all(world: World, plan: Plan) -> None:
    """Reports new starts done, and starts that follow from that."""
    while begun := [Done(action.id) for action in plan.actions if isinstance(action, Start)]:
        plan = world.turn(*begun)


def cluster(table: dict[str, Any]) -> Cluster:
    racks, nodes = table.get("racks", 0), table["nodes"]
    split = (("socket", table["sockets"]),) if "sockets" in table else ()
    levels = (*(["rack"] if racks else []), "node", *(level for level, _ in split))
    return Cluster(
        tuple(
            Node(
                f"n{i}",
                (f"r{i // nodes}",) if racks else (),
                table["gpus"],
                cpus_milli=table.get("cpus", 0) * 1000,
                split=split,
            )
            for i in range(nodes * max(racks, 1))
        ),
        levels,
    )


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
    cpus = fields.pop("cpus", 0)
    if "kind" in fields:
        fields["kind"] = Kind(fields["kind"])
    if found["gpus"]:
        task = {"cpus_milli": int(cpus * 1000)}
        return a_job(name, int(found["gpus"]), (least, most), found["required"] or "", task=task, **fields)
    inner = workers(int(found["members"]), int(found["each"]))
    role = Role("replica", least, most, members=(inner,), topology=within(found["level"]))
    return of_roles(name, role, required=found["required"] or "", **fields)


def happenings(world: World, step: dict[str, Any]) -> list[Event]:
    fields = step.get("with", {})
    events: list[Event] = [
        JobSubmitted(a_job_of(name, shape, dict(fields))) for name, shape in step.get("submit", {}).items()
    ]
    events += [Done(world.asks(name)[-1].id) for name in step.get("done", ())]
    events += [Failed(world.asks(name)[-1].id, "as the table says") for name in step.get("failed", ())]
    events += [Lost(world.asks(name)[-1].id) for name in step.get("lost", ())]
    events += [AttemptEnded(name, world.job(name).attempts, Outcome.SUCCEEDED) for name in step.get("end", ())]
    events += [JobCancelled(name) for name in step.get("cancel", ())]
    events += [JobHeld(name) for name in step.get("hold", ())]
    events += [JobReleased(name) for name in step.get("release", ())]
    saved = {name: world.job(name) for name in step.get("saved", ())}
    for name, record in saved.items():
        assert record.attempt is not None
        events.append(Progress(name, record.attempts, durable_step=record.attempt.durable_step + 1))
    events += [NodeHealthChanged(name, Health(health)) for name, health in step.get("node", {}).items()]
    return events


def check(world: World, step: dict[str, Any], plan: Plan, place: str) -> None:
    told = {
        "starts": starts(plan),
        "stops": sorted(stops(plan)),
        "victims": {claim.job: sorted(key.rpartition("/")[0] for key in claim.victims) for claim in plan.claims},
        "resizes": {a.id.job: len(a.placement.slots) for a in plan.actions if isinstance(a, Resize)},
    }
    for what, found in told.items():
        if what in step:
            expected = sorted(step[what]) if what == "stops" else step[what]
            assert found == expected, f"{place}: {what}"
    for name, expected in step.get("expect", {}).items():
        assert situation(world, name, str(expected)) == str(expected), f"{place}: {name}"


def situation(world: World, name: str, like: str) -> str:
    """Where a job is, or why it waits, in the words of the table: `n0`, `n0:4+n1:2` if GPUs are counted, `gpus`."""
    record = world.job(name)
    if record.final is not None:
        return record.final.value
    if record.attempt is None or record.attempt.waits:
        return str(world.reason(name))
    found = world.where(name)
    return "+".join(f"{node}:{len(found[node])}" if ":" in like else node for node in sorted(found))
