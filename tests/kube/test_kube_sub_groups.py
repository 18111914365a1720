"""Sub-groups of Volcano's PodGroups, each below one switch, on a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from kube_cluster import KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import POD_PATH, nodes_of, pods, reason, scheduling
from phalanx.kube.api.client import Client

pytestmark = pytest.mark.needs("kubernetes")

GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
SWITCH = {"n0": "s0", "n1": "s0", "n2": "s1", "n3": "s1"}
HARD = {"mode": "hard", "highestTierAllowed": 1}


def switches() -> list[dict[str, Any]]:
    """Two switches with two nodes each, below one spine."""
    return [*(node(name) for name in SWITCH), *(hyper_node(f"s{i}", f"n{2 * i}", f"n{2 * i + 1}") for i in range(2))]


def hyper_node(name: str, *members: str) -> dict[str, Any]:
    exact = [{"type": "Node", "selector": {"exactMatch": {"name": each}}} for each in members]
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": 1, "members": exact},
    }


def sharded(least: int, topology: dict[str, Any], **policy: Any) -> dict[str, Any]:
    """A PodGroup whose pods are divided by the label `shard`, two a sub-group."""
    says = {"name": "tp", "matchLabelKeys": ["shard"], "subGroupSize": 2, "networkTopology": topology, **policy}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "v", "namespace": "default"},
        "spec": {"minMember": least, "subGroupPolicy": [says]},
    }


def member(shard: int, index: int) -> dict[str, Any]:
    written = pod(f"p-{shard}-{index}", 8)
    written["metadata"]["labels"] = {"shard": str(shard)}
    written["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "v"}
    return written


def switches_of(api: Client) -> dict[str, list[str]]:
    """The switches below which the pods of each sub-group are."""
    found: dict[str, list[str]] = {}
    for name, where in nodes_of(api).items():
        found.setdefault(name.split("-")[1], []).append(SWITCH[where])
    return found


def test_each_sub_group_of_a_gang_lies_below_one_switch(api: Client, cluster: KubeCluster) -> None:
    """Pods of two sub-groups come in turn: by their names or ages alone they would be mixed up."""
    create(api, *switches(), sharded(4, HARD))
    with scheduling(cluster):
        create(api, member(0, 0), member(1, 0), member(0, 1))
        wait_for("three wait", lambda: "4 pods of PodGroup default/v" in reason(api, "p-0-1"))
        create(api, member(1, 1))
        wait_for("all are bound", lambda: len(nodes_of(api)) == 4)
    (first, second), (third, fourth) = switches_of(api).values()
    assert first == second != third == fourth


def test_a_gang_with_a_sub_group_that_finds_no_switch_is_bound_in_no_part(api: Client, cluster: KubeCluster) -> None:
    """One sub-group would fit, and one switch has but one free node left."""
    busy = pod("busy", 8, schedulerName="other", nodeName="n0")
    create(api, *switches(), busy, sharded(4, HARD), *(member(shard, i) for shard in range(2) for i in range(2)))
    with scheduling(cluster):
        wait_for("it is told so", lambda: bool(reason(api, "p-0-0")))
        assert nodes_of(api) == {"busy": "n0"}
        api.delete(f"{POD_PATH}/busy", {"gracePeriodSeconds": 0})
        wait_for("all are bound", lambda: len(nodes_of(api)) == 4)


def test_a_group_whose_topology_is_relaxed_goes_on_at_once(api: Client, cluster: KubeCluster) -> None:
    create(api, *switches(), sharded(2, HARD))
    create(api, *(pod(f"busy-{i}", 8, schedulerName="other", nodeName=f"n{i}") for i in (0, 2)))
    with scheduling(cluster):
        create(api, *(member(0, i) for i in range(2)))
        wait_for("no switch has two free nodes", lambda: "too few of them lie together" in reason(api, "p-0-1"))
        api.patch(f"{GROUPS}/v", sharded(2, {"mode": "soft"}), "merge-patch")
        wait_for("it lies below two", lambda: {"p-0-0", "p-0-1"} <= nodes_of(api).keys())


def test_the_sub_groups_that_must_start_do_and_another_follows_as_a_whole(api: Client, cluster: KubeCluster) -> None:
    create(api, *switches(), sharded(0, HARD, minSubGroups=1), member(0, 0), member(0, 1))
    with scheduling(cluster):
        wait_for("the first is bound", lambda: len(nodes_of(api)) == 2)
        create(api, member(1, 0))
        line = "2 pods of sub-group tp/1 start together, and 1 are there"
        wait_for("half of the second waits", lambda: line in reason(api, "p-1-0"))
        create(api, member(1, 1))
        wait_for("it is bound", lambda: len(nodes_of(api)) == 4)
    assert all(first == second for first, second in switches_of(api).values())


def test_a_pod_of_a_sub_group_that_runs_is_bound_below_its_switch_also_after_a_restart(
    api: Client, cluster: KubeCluster
) -> None:
    """A scheduler that starts anew knows of no place that the pod before it had."""
    create(api, *switches(), sharded(2, HARD), member(0, 0), member(0, 1))
    with scheduling(cluster):
        wait_for("all are bound", lambda: len(nodes_of(api)) == 2)
    where = nodes_of(api)
    api.delete(f"{POD_PATH}/p-0-1", {"gracePeriodSeconds": 0})
    wait_for("it is gone", lambda: "p-0-1" not in pods(api))
    with scheduling(cluster):
        create(api, member(0, 2))
        wait_for("another is bound", lambda: "p-0-2" in nodes_of(api))
    assert nodes_of(api)["p-0-2"] == where["p-0-1"]


def test_a_topology_by_the_name_of_a_tier_is_refused_by_its_field(api: Client, cluster: KubeCluster) -> None:
    create(api, *switches(), sharded(1, {"mode": "hard", "highestTierName": "rack"}), member(0, 0))
    line = "does not look at spec.subGroupPolicy.networkTopology.highestTierName"
    with scheduling(cluster):
        wait_for("the field is named", lambda: line in reason(api, "p-0-0"))


def test_the_partitions_of_a_volcano_job_lie_each_below_one_switch(api: Client, cluster: KubeCluster) -> None:
    container = pod("any", 8)["spec"]["containers"][0]
    partitions = {"totalPartitions": 2, "partitionSize": 2, "networkTopology": HARD}
    task = {
        "name": "p",
        "replicas": 4,
        "partitionPolicy": partitions,
        "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
    }
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"minAvailable": 4, "tasks": [task]},
    }
    create(api, *switches(), job)
    with scheduling(cluster, volcano_jobs=True):
        wait_for("all are bound", lambda: len(nodes_of(api)) == 4)
    below = [SWITCH[where] for _, where in sorted(nodes_of(api).items())]
    assert below[0] == below[1] != below[2] == below[3]
