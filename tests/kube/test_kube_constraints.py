"""What pods require of their nodes and of other pods, on a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from kube_cluster import KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import gang, nodes_of, reason, scheduling
from phalanx.kube.api.client import Client

pytestmark = pytest.mark.needs("kubernetes")


def with_port(written: dict[str, Any], port: int) -> dict[str, Any]:
    """A pod that listens on a port of its node."""
    written["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return written


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
