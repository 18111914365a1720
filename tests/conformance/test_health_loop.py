"""The health loop on every backend: it goes by the ends of attempts and the health of nodes, which all of them tell."""

from __future__ import annotations

from needs import about
from programs import Program
from rig import Rig

from builders import a_job
from phalanx.cluster.cluster import Health
from phalanx.engine.state.records import JobState
from phalanx.faults.health.quarantine import Rules
from phalanx.faults.health.watch import NodeWatch
from phalanx.protocol.event import CanaryPlaced, NodeHealthChanged

JOBS = 6


def health(rig: Rig, node: str) -> Health:
    return rig.state.capacity.health[rig.state.topology.number[node]]


@about(Program.FAIL, Program.SUCCEED)
def test_a_node_that_fails_jobs_is_found_and_a_canary_that_runs_there_brings_it_back(rig: Rig) -> None:
    canary = rig.subject.job(a_job("canary", 4), Program.SUCCEED)
    rig.subject.job(a_job("c1", 4), Program.SUCCEED)
    rig.canaries = iter(["c1"])
    rig.watch = NodeWatch(rig.state, Rules(share_max=0.5, first_ms=1_000), canary)
    for number in range(JOBS):
        rig.submit(f"good{number}", Program.SUCCEED, node_selector=(("phalanx/node", "n1"),))
        rig.submit(f"bad{number}", Program.FAIL, node_selector=(("phalanx/node", "n0"),))
    rig.until(lambda: health(rig, "n0") is Health.SUSPECT)
    rig.until(lambda: all(rig.record(f"{kind}{n}").final is not None for kind in ("good", "bad") for n in range(JOBS)))
    assert health(rig, "n1") is Health.HEALTHY
    rig.submit("other", Program.SUCCEED)
    rig.until(lambda: rig.record("other").final is not None)
    rig.until(lambda: health(rig, "n0") is Health.HEALTHY)
    assert rig.record("c1").final is JobState.SUCCEEDED
    told = [entry.body for entry in rig.journal.records]
    assert CanaryPlaced("c1", "n0") in told
    reasons = [body.reason for body in told if isinstance(body, NodeHealthChanged)]
    assert "jobs failed there" in reasons[0]
    assert reasons[-1] == "quarantine: over, its canary, job c1, has succeeded"
