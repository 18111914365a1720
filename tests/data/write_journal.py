"""Writes journal-v1.jsonl and what it tells: a small history that guards the form of the journal.

Run it only when the form or its meaning is changed on purpose, and then give the form a new version.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from builders import World, a_job, after, array, places  # noqa: E402
from phalanx.cluster.cluster import Cluster, Health, Link, Node  # noqa: E402
from phalanx.protocol.event import DeviceHealthChanged, JobCancelled, JobHeld, JobReleased, Outcome, Progress  # noqa: E402
from phalanx.workload.job import Checkpointing, Kind  # noqa: E402


def cluster() -> Cluster:
    nodes = tuple(
        Node(
            f"n{i}",
            (f"r{i // 2}",),
            4,
            "H100",
            80.0,
            16_000,
            64_000,
            labels=(("zone", "ab"[i % 2]),),
            split=(("socket", 2),),
        )
        for i in range(4)
    )
    links = {"node": Link(450.0, 1.0), "cluster": Link(50.0, 5.0)}
    return Cluster(nodes, ("rack", "node", "socket"), links)


def history() -> World:
    """A gang, a service, an array, a start that fails, a preemption, sick hardware, a hold, a cancel."""
    world = World(cluster(), "priority")
    world.run(a_job("train", 4, 2, required="rack", checkpoint=Checkpointing(0, 2_000)))
    world.submit(a_job("web", 1, 2, kind=Kind.SERVICE, priority=200, task={"cpus_milli": 2_000}))
    world.done("web", after_ms=500)
    world.submit(*array(a_job("sweep", 1, task={"cpus_milli": 1_000}), 3, at_a_time=2))
    world.done("sweep.0", "sweep.1", after_ms=100)
    world.submit(a_job("flaky"))
    world.failed("flaky", after_ms=100)
    world.submit(a_job("next", after=(after("train"),)), a_job("later", begin_ms=60_000))
    saved = Progress("train", 1, 10, 2.5, durable_step=10, stop_cost_ms=300, metrics={"loss": 1.5})
    world.turn(saved, after_ms=5_000)
    world.submit(a_job("urgent", 4, 3, priority=250), after_ms=5_000)
    world.done("flaky", after_ms=2_000)
    world.done("train", after_ms=2_000)
    world.turn(JobHeld("sweep.2"), DeviceHealthChanged("n3", 3, Health.SUSPECT, "ecc"))
    world.done("urgent", after_ms=1_000)
    world.health("n0", Health.DRAINING, after_ms=1_000)
    world.submit(a_job("huge", 8), after_ms=1_000)
    world.end("web", Outcome.LOST, after_ms=1_000)
    world.turn(JobCancelled("sweep.0"), after_ms=1_000)
    world.end("urgent", after_ms=10_000)
    world.done("web")
    world.done("sweep.0")
    world.done("flaky")
    world.turn(JobReleased("sweep.2"), after_ms=1_000)
    return world


def told(world: World) -> dict[str, object]:
    jobs = world.state.jobs
    return {
        "records": len(world.journal.records),
        "digest": str(world.state.digest),
        "states": {name: record.state.value for name, record in jobs.items()},
        "where": {name: places(record.attempt.placement) for name, record in jobs.items() if record.attempt},
        "reasons": {name: str(reason) for name in jobs if (reason := world.state.reason(name))},
    }


if __name__ == "__main__":
    story = history()
    (HERE / "journal-v1.jsonl").write_bytes(b"".join(line + b"\n" for line in story.journal.lines()))
    (HERE / "journal-v1.json").write_text(json.dumps(told(story), indent=1) + "\n")
