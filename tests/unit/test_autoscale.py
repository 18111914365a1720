"""Sizes of groups of nodes: what the engine would start on them, and nothing that stays idle."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from builders import a_job
from phalanx.backends.ray.scaling.demand import requests_of
from phalanx.backends.ray.scaling.forecast import Expected, fewest
from phalanx.backends.ray.scaling.groups import LABEL, Groups, NodeGroup, read_groups
from phalanx.backends.ray.scaling.kuberay import NoGroup, patch_of
from phalanx.backends.ray.scaling.sizes import Scaler, Size
from phalanx.cluster.cluster import Cluster, Health, Node
from phalanx.document import DocumentError
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.state import State
from phalanx.engine.turn import record as note
from phalanx.engine.turn import replay, turn
from phalanx.protocol.event import AttemptEnded, ClusterDefined, Event, JobSubmitted, NodeHealthChanged, Outcome
from phalanx.workload.job import Job

MINUTE_MS = 60_000


def group(name: str, most: int = 8, price: float = 10.0, spot: bool = False, least: int = 0) -> NodeGroup:
    """Nodes of eight GPUs."""
    node = Node(name, gpus=8, cpus_milli=64_000, memory_mb=1 << 20, spot=spot, price_usd_h=price)
    return NodeGroup(name, node, least, most)


def journal_of(nodes: int, *jobs: Job, belongs: str = "steady") -> Journal:
    """A cluster of some nodes of a group, and jobs as far as they have started on it."""
    state, journal = State(), Journal()
    made = tuple(
        Node(f"n{i}", (), 8, cpus_milli=64_000, memory_mb=1 << 20, labels=((LABEL, belongs),)) for i in range(nodes)
    )
    note(state, journal, ClusterDefined(Cluster(made), "priority"), 0)
    turn(state, journal, [JobSubmitted(job) for job in jobs], 0)
    return journal


def states_of(journal: Journal) -> Callable[[], State]:
    return lambda: replay(journal)


def goes_on(journal: Journal, event: Event, now: int) -> None:
    state = replay(journal)
    turn(state, journal, [event], now)


def test_a_gang_gets_as_many_nodes_as_it_needs_and_no_more() -> None:
    states = states_of(journal_of(1, a_job("a", 8, 4)))
    forecast = fewest(states, Expected(), group("steady"), 7, 0)
    assert forecast is not None
    assert (forecast.nodes, forecast.starts, forecast.price_usd_h) == (3, ("a",), 30.0)
    assert str(forecast) == "steady: 3 nodes more would start job a, for 30.00 USD an hour"


def test_no_node_is_asked_for_where_no_number_of_them_would_start_a_job() -> None:
    states = states_of(journal_of(1, a_job("a", 8, 10)))
    assert fewest(states, Expected(), group("steady"), 7, 0) is None
    assert fewest(states_of(journal_of(1, a_job("a", 16))), Expected(), group("steady"), 7, 0) is None


def test_the_cheapest_group_comes_first_and_another_takes_the_rest() -> None:
    scaler = Scaler(Groups((group("steady", price=20.0), group("cheap", most=2, price=5.0))))
    answer = scaler.look(states_of(journal_of(1, *(a_job(name, 8) for name in "abcd"))), 0)
    assert answer.sizes == (Size("steady", 2), Size("cheap", 2))


def test_spot_nodes_are_only_for_jobs_that_may_be_preempted() -> None:
    scaler = Scaler(Groups((group("steady", price=20.0), group("spot", price=5.0, spot=True))))
    jobs = (a_job("a", 8), a_job("b", 8, preemptible=False), a_job("c", 8))
    answer = scaler.look(states_of(journal_of(0, *jobs)), 0)
    starts = {forecast.group: forecast.starts for forecast in answer.forecasts}
    assert "b" not in starts["spot"]
    assert starts["steady"] == ("b",)


def test_a_node_leaves_once_it_was_idle_for_long_but_never_below_the_least() -> None:
    scaler = Scaler(Groups((group("steady", least=1),), idle_ms=10 * MINUTE_MS, cool_down_ms=MINUTE_MS))
    journal = journal_of(3, a_job("a", 8))
    assert scaler.look(states_of(journal), 0).sizes == (Size("steady", 3),)
    assert scaler.look(states_of(journal), 9 * MINUTE_MS).sizes == (Size("steady", 3),)
    assert scaler.look(states_of(journal), 10 * MINUTE_MS).sizes == (Size("steady", 1, ("n1", "n2")),)


def test_a_node_on_which_something_ran_meanwhile_is_idle_from_then_on() -> None:
    scaler = Scaler(Groups((group("steady"),), idle_ms=10 * MINUTE_MS, cool_down_ms=0))
    journal = journal_of(1, a_job("a", 8))
    assert scaler.look(states_of(journal), 20 * MINUTE_MS).sizes == (Size("steady", 1),)
    goes_on(journal, AttemptEnded("a", 1, Outcome.SUCCEEDED), 21 * MINUTE_MS)
    assert scaler.look(states_of(journal), 21 * MINUTE_MS).sizes == (Size("steady", 1),)
    assert scaler.look(states_of(journal), 31 * MINUTE_MS).sizes == (Size("steady", 0, ("n0",)),)


def test_a_node_that_is_still_to_come_does_not_count_as_there() -> None:
    journal = journal_of(2, a_job("a", 8, 2))
    states = states_of(journal)
    assert Scaler(Groups((group("steady"),))).look(states, 0).sizes == (Size("steady", 2),)
    journal = journal_of(2)
    goes_on(journal, NodeHealthChanged("n1", Health.FAILED, "Ray has no such node"), 1)
    assert Scaler(Groups((group("steady"),))).look(states_of(journal), 2).sizes == (Size("steady", 1),)
    goes_on(journal, JobSubmitted(a_job("a", 8, 2)), 3)
    assert Scaler(Groups((group("steady"),))).look(states_of(journal), 4).sizes == (Size("steady", 2),)


def test_nothing_leaves_while_the_groups_cool_down() -> None:
    scaler = Scaler(Groups((group("steady"), group("big", price=90.0)), idle_ms=0, cool_down_ms=5 * MINUTE_MS))
    jobs = [a_job(name, 8) for name in "ab"]
    assert scaler.look(states_of(journal_of(1, *jobs)), 0).sizes[0] == Size("steady", 2)
    answer = scaler.look(states_of(journal_of(2)), MINUTE_MS)
    assert answer.sizes[0] == Size("steady", 2)
    assert answer.notes == ("nothing is given back before the cool-down is over",)
    assert scaler.look(states_of(journal_of(2)), 6 * MINUTE_MS).sizes[0].leave == ("n0", "n1")


def test_a_raycluster_is_changed_by_replicas_and_by_the_workers_that_leave() -> None:
    cluster = {
        "metadata": {"name": "lab"},
        "spec": {"workerGroupSpecs": [{"groupName": "steady", "replicas": 1}, {"groupName": "spot", "replicas": 2}]},
    }
    assert patch_of(cluster, [Size("steady", 3), Size("spot", 1, ("lab-spot-worker-x",))]) == [
        {"op": "test", "path": "/spec/workerGroupSpecs/0/groupName", "value": "steady"},
        {"op": "add", "path": "/spec/workerGroupSpecs/0/replicas", "value": 3},
        {"op": "test", "path": "/spec/workerGroupSpecs/1/groupName", "value": "spot"},
        {"op": "add", "path": "/spec/workerGroupSpecs/1/replicas", "value": 1},
        {
            "op": "add",
            "path": "/spec/workerGroupSpecs/1/scaleStrategy",
            "value": {"workersToDelete": ["lab-spot-worker-x"]},
        },
    ]
    assert patch_of(cluster, [Size("steady", 1), Size("spot", 2)]) == []


def test_a_raycluster_that_cannot_be_sized_says_why() -> None:
    cluster = {"metadata": {"name": "lab"}, "spec": {"workerGroupSpecs": [{"groupName": "steady", "maxReplicas": 2}]}}
    with pytest.raises(NoGroup, match="no worker group 'spot'; expected one of steady"):
        patch_of(cluster, [Size("spot", 1)])
    with pytest.raises(NoGroup, match="3 replicas are not within its 0 to 2"):
        patch_of(cluster, [Size("steady", 3)])
    own = {"metadata": {"name": "lab"}, "spec": {"enableInTreeAutoscaling": True}}
    with pytest.raises(NoGroup, match="Ray's own autoscaler sizes it"):
        patch_of(own, [Size("steady", 1)])


def test_demand_is_a_bundle_for_each_task_of_what_runs_and_what_waits() -> None:
    state = replay(journal_of(1, a_job("a", 8), a_job("b", 2, (2, 6), task={"cpus_milli": 500})))
    assert [each["bundle"] for each in requests_of(state)] == [{"GPU": 8.0}, *[{"GPU": 2.0, "CPU": 0.5}] * 2]


def test_a_file_of_groups_is_read_and_names_what_is_wrong_with_it() -> None:
    text = (
        "groups:\n  - {name: a, min: 1, max: 4, gpus: 8, cpus: 16, memory_gb: 128, price: 24, spot: true}\nidle: 5m\n"
    )
    groups = read_groups(text, "groups.yaml")
    assert (groups.idle_ms, groups.groups[0].node.price_usd_h, groups.groups[0].node.spot) == (300_000, 24.0, True)
    with pytest.raises(DocumentError, match=r"groups.yaml:2: .*at most `max`"):
        read_groups(text.replace("min: 1", "min: 5"), "groups.yaml")
