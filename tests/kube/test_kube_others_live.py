"""Pods of kube-scheduler, or of any other, make way where the operator says so: on a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from kube_cluster import KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import create_priority, gang, nodes_of, pods, reason, scheduling, verb
from phalanx.kube.api.client import Client

pytestmark = pytest.mark.needs("kubernetes")


def theirs(api: Client, name: str, where: str, **spec: Any) -> dict[str, Any]:
    """A pod of a low priority that another scheduler has bound."""
    create_priority(api, "scrap", -10)
    return pod(name, 8, schedulerName="other", nodeName=where, priorityClassName="scrap", **spec)


def is_leaving(api: Client, name: str) -> bool:
    found = pods(api).get(name)
    return found is None or found.is_leaving


def test_a_gang_has_pods_of_another_scheduler_evicted_where_that_is_allowed(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), node("n1"), theirs(api, "t0", "n0"), theirs(api, "t1", "n1"))
    with scheduling(cluster, preempt_others_below=0):
        create(api, *gang("g", 2, 8))
        wait_for("both go", lambda: is_leaving(api, "t0") and is_leaving(api, "t1"))
        wait_for("the gang is bound", lambda: {"g-0", "g-1"} <= nodes_of(api).keys())


def test_pods_of_another_scheduler_stay_where_nothing_is_said(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), theirs(api, "t0", "n0"))
    with scheduling(cluster):
        create(api, pod("p", 8))
        wait_for("it waits", lambda: "8 GPUs" in reason(api, "p"))
        assert not is_leaving(api, "t0")


def test_a_scheduler_that_starts_again_knows_the_pods_that_may_make_way(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), theirs(api, "t0", "n0"))
    with verb(cluster, "--preempt-others-below", "0") as process:
        assert process.stderr is not None
        assert b"scheduling" in process.stderr.readline()
        process.kill()
    with verb(cluster, "--preempt-others-below", "0"):
        create(api, pod("p", 8))
        wait_for("it is bound in its place", lambda: "p" in nodes_of(api))
        assert is_leaving(api, "t0")


def test_a_budget_keeps_pods_of_another_scheduler(api: Client, cluster: KubeCluster) -> None:
    kept = theirs(api, "t0", "n0")
    kept["metadata"]["labels"]["app"] = "kept"
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    create(api, node("n0"), budget, kept)
    with scheduling(cluster, preempt_others_below=0):
        create(api, pod("p", 8))
        wait_for("it names the budget", lambda: "PodDisruptionBudget default/kept" in reason(api, "p"))
        assert not is_leaving(api, "t0")
