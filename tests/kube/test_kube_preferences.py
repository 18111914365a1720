"""What pods prefer and do not require, on a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from kube_cluster import KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import gang, nodes_of, scheduling
from phalanx.kube.api.client import Client

pytestmark = pytest.mark.needs("kubernetes")

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def nodes(count: int, zones: int) -> list[dict[str, Any]]:
    """Nodes n0, n1, … that lie in zones a, b, … in turn."""
    return [node(f"n{i}", labels={HOST: f"n{i}", ZONE: "abcdef"[i % zones]}) for i in range(count)]


def in_zone(zone: str, weight: int) -> dict[str, Any]:
    expression = {"key": ZONE, "operator": "In", "values": [zone]}
    return {"nodeAffinity": {PREFERRED: [{"weight": weight, "preference": {"matchExpressions": [expression]}}]}}


def apart(key: str, **labels: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {"podAntiAffinity": {PREFERRED: [{"weight": 100, "podAffinityTerm": term}]}}


def labelled(written: dict[str, Any], **labels: str) -> dict[str, Any]:
    written["metadata"]["labels"].update(labels)
    return written


def test_pods_go_to_the_zone_that_they_prefer_and_then_to_any(api: Client, cluster: KubeCluster) -> None:
    create(api, *nodes(2, 2))
    with scheduling(cluster):
        create(api, pod("first", 8, affinity=in_zone("b", 50)))
        wait_for("it is where it prefers to be", lambda: nodes_of(api).get("first") == "n1")
        create(api, pod("second", 8, affinity=in_zone("b", 50)))
        wait_for("what it prefers keeps it from nothing", lambda: nodes_of(api).get("second") == "n0")


def test_a_gang_goes_to_the_zone_that_it_prefers(api: Client, cluster: KubeCluster) -> None:
    create(api, *nodes(4, 2), *gang("g", 2, 8, affinity=in_zone("b", 1)))
    with scheduling(cluster):
        wait_for("both are in zone b", lambda: sorted(nodes_of(api).values()) == ["n1", "n3"])


def test_replicas_that_prefer_to_be_apart_lie_on_nodes_of_their_own(api: Client, cluster: KubeCluster) -> None:
    replicas = [labelled(pod(f"w{i}", affinity=apart(HOST, app="web")), app="web") for i in range(4)]
    create(api, *nodes(3, 1), *replicas)
    with scheduling(cluster):
        wait_for("all are bound", lambda: len(nodes_of(api)) == 4)
        assert sorted(set(nodes_of(api).values())) == ["n0", "n1", "n2"]


def test_replicas_are_spread_over_zones_as_evenly_as_there_is_room(api: Client, cluster: KubeCluster) -> None:
    selector = {"matchLabels": {"app": "web"}}
    spread = [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}]
    create(api, *nodes(2, 2), pod("busy", 4, schedulerName="other", nodeName="n0"))
    with scheduling(cluster):
        create(api, *(labelled(pod(f"w{i}", 4, topologySpreadConstraints=spread), app="web") for i in range(3)))
        wait_for("all are bound", lambda: sorted(nodes_of(api).values()) == ["n0", "n0", "n1", "n1"])
