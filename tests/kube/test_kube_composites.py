"""CompositePodGroups on a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from kube_cluster import COMPOSITES, NATIVE_GROUPS, KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import create_priority, nodes_of, reason, scheduling
from phalanx.kube.api.client import Client

pytestmark = pytest.mark.needs("kubernetes")

RACK = "network.topology.nvidia.com/block"
ALPHA = "scheduling.k8s.io/v1alpha3"
BELOW = NATIVE_GROUPS.replace("v1beta1", "v1alpha3")


def group(kind: str, name: str, policy: dict[str, Any], parent: str = "", rack: bool = False) -> dict[str, Any]:
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": policy}}
    spec["workloadRef"] = {"workloadName": "w", "templateName": name}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    if rack:
        spec["schedulingConstraints"] = {"topology": [{"key": RACK}]}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": ALPHA, "kind": kind, "metadata": metadata, "spec": spec}


def replicas(api: Client, count: int, pods: int) -> None:
    """A group of groups of so many replicas, each of so many whole nodes of one rack."""
    api.post(COMPOSITES, group("CompositePodGroup", "root", {"minGroupCount": count}))
    for i in range(count):
        api.post(BELOW, group("PodGroup", f"r{i}", {"minCount": pods}, "root", rack=True))


def member(replica: int, index: int) -> dict[str, Any]:
    return pod(f"r{replica}-{index}", 8, schedulingGroup={"podGroupName": f"r{replica}"})


def condition(api: Client) -> dict[str, Any]:
    conditions = api.get(f"{COMPOSITES}/root", dict[str, Any]).get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == "CompositePodGroupInitiallyScheduled"), {})


def test_groups_of_a_group_start_together_each_in_its_rack(api: Client, cluster: KubeCluster) -> None:
    create(api, *(node(f"n{i}", labels={RACK: f"rack{i % 2}"}) for i in range(4)))
    replicas(api, 2, 2)
    with scheduling(cluster):
        create(api, member(0, 0), member(0, 1), member(1, 0))
        wait_for("they wait for the last", lambda: "2 groups of root start together" in reason(api, "r0-0"))
        assert not nodes_of(api)
        create(api, member(1, 1))
        wait_for("all are bound", lambda: len(nodes_of(api)) == 4)
        wait_for("their group says so", lambda: condition(api).get("status") == "True")
    where = nodes_of(api)
    racks = [{int(where[f"r{replica}-{i}"][1:]) % 2 for i in range(2)} for replica in range(2)]
    assert sorted(racks) == [{0}, {1}]


def test_a_group_of_groups_that_does_not_fit_says_why_and_one_that_runs_makes_way_whole(
    api: Client, cluster: KubeCluster
) -> None:
    create(api, node("n0", labels={RACK: "a"}))
    replicas(api, 2, 1)
    with scheduling(cluster):
        create(api, member(0, 0), member(1, 0))
        wait_for("its pods say why", lambda: "could ever hold it" in reason(api, "r1-0"), 12)
        wait_for("so does it", lambda: "could ever hold it" in condition(api).get("message", ""))
        assert not nodes_of(api)
        create(api, node("n1", labels={RACK: "b"}))
        wait_for("both are bound", lambda: len(nodes_of(api)) == 2)
        create_priority(api, "urgent", 1000)
        create(api, pod("urgent", 8, priorityClassName="urgent"))
        wait_for("the urgent pod is alone", lambda: list(nodes_of(api)) == ["urgent"])
