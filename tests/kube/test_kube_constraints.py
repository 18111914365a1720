"""What pods require of their nodes and of other pods, on a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from kube_cluster import KubeCluster, create, wait_for
from kube_objects import group, node, pod
from kube_site import create_priority, gang, nodes_of, reason, scheduling
from phalanx.kube.api.client import Client

pytestmark = pytest.mark.needs("kubernetes")


def with_port(written: dict[str, Any], port: int) -> dict[str, Any]:
    """A pod that listens on a port of its node."""
    written["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return written


HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def nodes(count: int, zones: int = 1) -> list[dict[str, Any]]:
    """Nodes n0, n1, … that lie in zones a, b, … in turn."""
    return [node(f"n{i}", labels={HOST: f"n{i}", ZONE: "abcdef"[i % zones]}) for i in range(count)]


def term(key: str, **labels: str) -> dict[str, Any]:
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
        ]
    }


def apart(key: str, **labels: str) -> dict[str, Any]:
    """The affinity of pods that are apart from others."""
    return {"podAntiAffinity": term(key, **labels)}


def near(key: str, **labels: str) -> dict[str, Any]:
    """The affinity of pods that are near others."""
    return {"podAffinity": term(key, **labels)}


def spread(key: str, **labels: str) -> list[dict[str, Any]]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
    ]


def labelled(written: dict[str, Any], **labels: str) -> dict[str, Any]:
    written["metadata"]["labels"].update(labels)
    return written


def alike(members: list[dict[str, Any]], **labels: str) -> list[dict[str, Any]]:
    """A gang whose pods have some labels."""
    group, *pods = members
    return [group, *(labelled(each, **labels) for each in pods)]


def zones_of(api: Client) -> list[str]:
    return sorted("abcdef"[int(name[1:]) % 2] for name in nodes_of(api).values())


def test_two_pods_with_one_host_port_run_on_two_nodes(api: Client, cluster: KubeCluster) -> None:
    theirs = with_port(pod("theirs", 1, schedulerName="default-scheduler", nodeName="n0"), 8080)
    create(api, node("n0"), node("n1"), theirs)
    with scheduling(cluster):
        create(api, with_port(pod("a"), 8080))
        wait_for("the first takes the free node", lambda: nodes_of(api).get("a") == "n1")
        create(api, with_port(pod("b"), 8080), with_port(pod("c"), 9090))
        wait_for("another port is free", lambda: "c" in nodes_of(api))
        wait_for("the second says why", lambda: "without enough free host port TCP/8080" in reason(api, "b"))
        assert "b" not in nodes_of(api)


def test_a_gang_with_host_ports_has_one_pod_a_node(api: Client, cluster: KubeCluster) -> None:
    group, *members = gang("g", 2, 1)
    create(api, node("n0"), node("n1"), group, *(with_port(each, 8080) for each in members))
    with scheduling(cluster):
        wait_for("each is on a node of its own", lambda: sorted(nodes_of(api).values()) == ["n0", "n1"])


def test_a_node_has_no_more_pods_than_it_may(api: Client, cluster: KubeCluster) -> None:
    small = node("n0")
    small["status"]["allocatable"]["pods"] = "3"
    theirs = pod("theirs", 0, schedulerName="default-scheduler", nodeName="n0")
    create(api, small, theirs)
    with scheduling(cluster):
        create(api, pod("a"), pod("b"))
        wait_for("two are bound", lambda: len(nodes_of(api)) == 3)
        create(api, pod("c"))
        wait_for("the third says why", lambda: "without enough free pods" in reason(api, "c"))


def test_a_pod_is_not_bound_beside_one_that_it_must_be_apart_from(api: Client, cluster: KubeCluster) -> None:
    create(api, *nodes(2), labelled(pod("noisy", schedulerName="default-scheduler", nodeName="n0"), app="noisy"))
    with scheduling(cluster):
        create(api, pod("quiet", affinity=apart(HOST, app="noisy")))
        wait_for("it is bound to the other node", lambda: nodes_of(api).get("quiet") == "n1")


def test_a_pod_is_not_bound_beside_one_that_must_be_apart_from_it(api: Client, cluster: KubeCluster) -> None:
    shy = pod("shy", affinity=apart(ZONE, app="noisy"), schedulerName="default-scheduler", nodeName="n0")
    create(api, *nodes(2, 2), shy)
    with scheduling(cluster):
        create(api, labelled(pod("noisy", 8), app="noisy"))
        wait_for("it is bound in the other zone", lambda: nodes_of(api).get("noisy") == "n1")
        create(api, labelled(pod("second", 1), app="noisy"))
        wait_for("the next says why", lambda: "1 ruled out by the pod anti-affinity" in reason(api, "second"))


def test_a_pod_that_no_node_is_apart_enough_for_waits_and_names_the_field(api: Client, cluster: KubeCluster) -> None:
    noisy = labelled(pod("noisy", schedulerName="default-scheduler", nodeName="n0"), app="noisy")
    create(api, *nodes(2), noisy, pod("quiet", affinity=apart(ZONE, app="noisy")))
    with scheduling(cluster):
        wait_for("it says why", lambda: reason(api, "quiet") == "of 2 nodes: 2 ruled out by its pod anti-affinity")
        api.delete("/api/v1/namespaces/default/pods/noisy", {"gracePeriodSeconds": 0})
        wait_for("it is bound once the other is gone", lambda: "quiet" in nodes_of(api))


def test_a_gang_whose_pods_are_apart_has_one_a_node(api: Client, cluster: KubeCluster) -> None:
    create(api, *nodes(3), *alike(gang("g", 3, 1, affinity=apart(HOST, app="g")), app="g"))
    with scheduling(cluster):
        wait_for("each is on a node of its own", lambda: sorted(nodes_of(api).values()) == ["n0", "n1", "n2"])


def test_two_gangs_that_are_apart_from_one_another_share_no_node(api: Client, cluster: KubeCluster) -> None:
    create(api, *nodes(4))
    first, second = (alike(gang(name, 2, 1, affinity=apart(HOST, app="x")), app="x") for name in ("g", "h"))
    with scheduling(cluster):
        create(api, *first, *second)
        wait_for("all are bound", lambda: sorted(nodes_of(api).values()) == ["n0", "n1", "n2", "n3"])


def test_a_gang_whose_pods_are_apart_by_zones_lies_in_as_many(api: Client, cluster: KubeCluster) -> None:
    create(api, *nodes(4, 2), *alike(gang("g", 2, 1, affinity=apart(ZONE, app="g")), app="g"))
    with scheduling(cluster):
        wait_for("both are bound", lambda: zones_of(api) == ["a", "b"])
        create(api, *alike(gang("h", 3, 1, affinity=apart(ZONE, app="h")), app="h"))
        wait_for("three find no zones", lambda: "ruled out by its pod anti-affinity" in reason(api, "h-0"))
        create(api, *alike(gang("i", 2, 16, affinity=apart(ZONE, app="i")), app="i"))
        wait_for("no node is so large", lambda: "ruled out by a lack of GPUs" in reason(api, "i-0"))


def test_a_gang_whose_pods_are_near_one_another_lies_in_one_zone(api: Client, cluster: KubeCluster) -> None:
    """Zone a has more free GPUs, but not on two whole nodes."""
    create(api, *nodes(6, 2), *(pod(f"busy-{i}", 1, schedulerName="other", nodeName=f"n{i}") for i in (0, 2)))
    with scheduling(cluster):
        create(api, *alike(gang("g", 2, 8, affinity=near(ZONE, app="g")), app="g"))
        wait_for("both are bound", lambda: zones_of(api).count("b") == 2)


def test_a_pod_goes_where_the_pods_are_that_it_must_be_near(api: Client, cluster: KubeCluster) -> None:
    create(api, *nodes(3, 3), pod("early", affinity=near(ZONE, app="data")))
    with scheduling(cluster):
        wait_for("without them it waits", lambda: "3 ruled out by its pod affinity" in reason(api, "early"))
        create(api, labelled(pod("data", schedulerName="other", nodeName="n2"), app="data"))
        wait_for("it is bound beside them", lambda: nodes_of(api).get("early") == "n2")


def test_a_gang_is_spread_over_zones(api: Client, cluster: KubeCluster) -> None:
    create(api, *nodes(4, 2), *alike(gang("g", 4, 1, topologySpreadConstraints=spread(ZONE, app="g")), app="g"))
    with scheduling(cluster):
        wait_for("all are bound", lambda: zones_of(api) == ["a", "a", "b", "b"])


def test_a_gang_is_spread_over_zones_and_nodes(api: Client, cluster: KubeCluster) -> None:
    both = [*spread(ZONE, app="g"), *spread(HOST, app="g")]
    create(api, *nodes(4, 2), *alike(gang("g", 4, 1, topologySpreadConstraints=both), app="g"))
    with scheduling(cluster):
        wait_for("all are bound", lambda: sorted(nodes_of(api).values()) == ["n0", "n1", "n2", "n3"])


def test_a_pod_is_spread_beside_those_that_are_there(api: Client, cluster: KubeCluster) -> None:
    there = labelled(pod("there", schedulerName="other", nodeName="n0"), app="s")
    create(api, *nodes(2, 2), there, pod("full", 8, schedulerName="other", nodeName="n1"))
    with scheduling(cluster):
        create(api, labelled(pod("s", topologySpreadConstraints=spread(ZONE, app="s")), app="s"))
        wait_for("zone a would be skewed", lambda: "1 ruled out by its topology spread" in reason(api, "s"))
        assert "s" not in nodes_of(api)
        api.delete("/api/v1/namespaces/default/pods/full", {"gracePeriodSeconds": 0})
        wait_for("it is bound in zone b", lambda: nodes_of(api).get("s") == "n1")


def test_a_gang_has_a_master_on_cpu_nodes_and_workers_on_gpu_nodes(api: Client, cluster: KubeCluster) -> None:
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    tolerations = [{"key": "gpu", "operator": "Exists"}]
    master = pod("master", 0, "g", nodeSelector={"pool": "cpu"})
    workers = [pod(f"w{i}", 8, "g", nodeSelector={"pool": "gpu"}, tolerations=tolerations) for i in range(2)]
    gpu_nodes = [node(f"n{i}", labels={"pool": "gpu"}, taints=taints) for i in range(2)]
    create(api, *gpu_nodes, node("n2", 0, labels={"pool": "cpu"}), group("g", 3), master, *workers)
    with scheduling(cluster):
        wait_for("all are bound", lambda: len(nodes_of(api)) == 3)
        assert nodes_of(api)["master"] == "n2"
        assert sorted(nodes_of(api)[each] for each in ("w0", "w1")) == ["n0", "n1"]


def test_a_pod_that_may_not_preempt_waits_for_what_gets_free(api: Client, cluster: KubeCluster) -> None:
    create(api, *nodes(1), pod("low", 8))
    with scheduling(cluster):
        wait_for("the low one runs", lambda: "low" in nodes_of(api))
        create_priority(api, "polite", 1000, preemptionPolicy="Never")
        create(api, pod("polite", 8, priorityClassName="polite"))
        wait_for("it says why it waits", lambda: "its preemptionPolicy is Never" in reason(api, "polite"))
        assert "low" in nodes_of(api)
        api.delete("/api/v1/namespaces/default/pods/low", {"gracePeriodSeconds": 0})
        wait_for("it is bound", lambda: "polite" in nodes_of(api))
