"""Shortcuts: what a decision leaves out where it makes no difference makes no difference."""

from __future__ import annotations

import pytest

from builders import World, a_job, racked
from phalanx.cluster.cluster import Cluster, Node, flat
from phalanx.engine.decide import shortcut
from phalanx.engine.state.state import State
from phalanx.placement import gang
from phalanx.protocol.event import ClusterChanged
from phalanx.protocol.plan import Plan
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.traces.synthetic import Synthetic, synthesize
from phalanx.workload.gang import Gang

CLUSTER = Cluster(tuple(Node(f"n{i}", (f"r{i // 2}",), 8) for i in range(4)), ("rack", "node"))
TRACE = synthesize(Synthetic(jobs=120, gpus=32, load=1.5, sweeps=0.2, elastic=0.1, cancelled=0.1), 3)


def digest(policy: str, placement: str = "topology") -> str:
    simulation = Simulation(Setup(CLUSTER, TRACE, policy, placement))
    simulation.begin()
    simulation.go()
    return str(simulation.run.state.digest)


@pytest.mark.parametrize("policy", ["fifo", "fifo:skip=true", "backfill", "tiresias-las", "priority", "yarn-cs"])
def test_who_waits_alone_starts_just_as_it_would_from_the_line(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, found = shortcut.start_alone, []

    def watched(state: State) -> Plan | None:
        found.append(usual(state))
        return found[-1]

    monkeypatch.setattr(shortcut, "start_alone", watched)
    short = digest(policy)
    assert any(plan is not None for plan in found)
    monkeypatch.setattr(shortcut, "start_alone", lambda state: None)
    monkeypatch.setattr(shortcut, "start_in_order", lambda state: None)
    assert digest(policy) == short


@pytest.mark.parametrize("policy", ["fifo", "sjf", "edf", "fifo:skip=true", "priority", "backfill"])
def test_those_whom_nobody_may_pass_start_in_their_order_just_as_the_line_would_have_it(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, found = shortcut.start_in_order, []

    def watched(state: State) -> Plan | None:
        found.append(usual(state))
        return found[-1]

    monkeypatch.setattr(shortcut, "start_in_order", watched)
    short = digest(policy)
    plans = [plan for plan in found if plan is not None]
    assert any(plan.head for plan in plans) == (policy == "fifo")
    assert any(plan.claims for plan in plans) == (policy == "fifo")
    monkeypatch.setattr(shortcut, "start_in_order", lambda state: None)
    assert digest(policy) == short


@pytest.mark.parametrize("placement", ["topology", "pack", "spread", "random"])
def test_one_task_is_seated_just_where_the_search_would_have_it(
    placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, found = gang.is_lone, []

    def watched(whole: Gang) -> bool:
        found.append(usual(whole))
        return found[-1]

    for module in (gang, shortcut):
        monkeypatch.setattr(module, "is_lone", watched)
    short = digest("fifo:skip=true", placement)
    assert True in found
    assert False in found
    for module in (gang, shortcut):
        monkeypatch.setattr(module, "is_lone", lambda whole: False)
    monkeypatch.setattr(gang, "is_single", lambda whole: False)
    assert digest("fifo:skip=true", placement) == short


def test_a_gang_that_was_taken_on_once_is_looked_through_again_where_the_cluster_is_another() -> None:
    world = World(racked(2, 1, gpus=2))
    for name in ("a", "b"):
        world.run(a_job(name, required="rack"))
        world.end(name)
    world.turn(ClusterChanged(flat(2, 2)))
    with pytest.raises(ValueError, match="job c asks for the level 'rack'; this cluster has node"):
        world.submit(a_job("c", required="rack"))
