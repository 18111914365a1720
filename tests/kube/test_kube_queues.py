"""Queues of Volcano and priority classes of groups, on a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from kube_cluster import KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import create_priority, nodes_of, pods, reason, scheduling
from phalanx.kube.api.client import Client

pytestmark = pytest.mark.needs("kubernetes")

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
GPU = "nvidia.com/gpu"


def queue(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def gang(name: str, count: int, queue: str = "", gpus: int = 8, **spec: Any) -> list[dict[str, Any]]:
    """A group of Volcano and its pods."""
    found = [pod(f"{name}-{i}", gpus) for i in range(count)]
    for each in found:
        each["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": name}
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": count, **({"queue": queue} if queue else {}), **spec},
    }
    return [group, *found]


def test_a_queue_gets_no_more_than_its_capability_also_after_a_restart(api: Client, cluster: KubeCluster) -> None:
    create(api, queue("small", capability={GPU: 8}), node("n0"), node("n1"), *gang("first", 1, "small"))
    with scheduling(cluster):
        wait_for("the first is bound", lambda: list(nodes_of(api)) == ["first-0"])
    create(api, *gang("second", 1, "small"), *gang("other", 1))
    with scheduling(cluster):
        wait_for("that of another queue is bound", lambda: "other-0" in nodes_of(api))
        wait_for("the second names its queue", lambda: "small" in reason(api, "second-0"))
        assert "second-0" not in nodes_of(api)
        api.patch(f"{QUEUES}/small", {"spec": {"capability": {GPU: 16}}}, "merge-patch")
        wait_for("it waits for GPUs only", lambda: "small" not in reason(api, "second-0"))


def test_a_queue_takes_back_what_it_deserves(api: Client, cluster: KubeCluster) -> None:
    create(api, queue("a", deserved={GPU: 8}), queue("b", deserved={GPU: 8}), node("n0"), node("n1"))
    create(api, *gang("b1", 1, "b"), *gang("b2", 1, "b"))
    with scheduling(cluster):
        wait_for("b has all", lambda: len(nodes_of(api)) == 2)
        create(api, *gang("a1", 1, "a"))
        wait_for("a has its part", lambda: "a1-0" in nodes_of(api))
    assert len(nodes_of(api)) == 2


def test_a_job_waits_for_its_queue_to_be_there_and_open(api: Client, cluster: KubeCluster) -> None:
    create(api, queue("known"), node("n0"), *gang("g", 1, "new"))
    with scheduling(cluster):
        wait_for("it says so", lambda: reason(api, "g-0") == "its queue new is not there; there are known")
        create(api, queue("new"))
        wait_for("it is bound", lambda: "g-0" in nodes_of(api))
        api.patch(f"{QUEUES}/new/status", {"status": {"state": "Closed"}}, "merge-patch")
        create(api, *gang("late", 1, "new", 0))
        wait_for("the next waits", lambda: reason(api, "late-0") == "its queue new is closed")
        assert "g-0" in nodes_of(api), "what runs goes on"
        api.patch(f"{QUEUES}/new/status", {"status": {"state": "Open"}}, "merge-patch")
        wait_for("it is bound, too", lambda: "late-0" in nodes_of(api))


def test_a_gang_that_is_pending_stays_so_when_its_queue_is_closed(api: Client, cluster: KubeCluster) -> None:
    create(api, queue("q"), *gang("g", 1, "q"))
    with scheduling(cluster):
        wait_for("it waits for a node", lambda: bool(reason(api, "g-0")))
        api.patch(f"{QUEUES}/q/status", {"status": {"state": "Closed"}}, "merge-patch")
        wait_for("it waits for its queue", lambda: reason(api, "g-0") == "its queue q is closed")
        create(api, node("n0"), pod("other", 1))
        wait_for("another is bound", lambda: "other" in nodes_of(api))
        assert "g-0" not in nodes_of(api)


def test_queues_in_queues_are_bound_by_those_around_them(api: Client, cluster: KubeCluster) -> None:
    create(api, queue("root"), queue("org", parent="root", capability={GPU: 8}))
    create(api, queue("x", parent="org"), queue("y", parent="org"), node("n0"), node("n1"))
    create(api, *gang("gx", 1, "x"), *gang("gy", 1, "y"))
    with scheduling(cluster):
        wait_for("one is bound", lambda: len(nodes_of(api)) == 1)
        wait_for("the other names the queue", lambda: any("org" in reason(api, each) for each in pods(api)))
    assert len(nodes_of(api)) == 1


def test_a_queue_that_is_promised_too_much_is_told_and_holds_nothing_up(api: Client, cluster: KubeCluster) -> None:
    create(api, queue("greedy", guarantee={"resource": {GPU: 100}}), node("n0"), *gang("g", 1, "greedy"))
    with scheduling(cluster):
        wait_for("its jobs run", lambda: "g-0" in nodes_of(api))
        wait_for("an event says so", lambda: any("greedy deserves 100 GPUs" in each for each in _said(api)))


def _said(api: Client) -> list[str]:
    found: Any = api.get("/api/v1/namespaces/default/events", dict[str, Any])
    return [each["message"] for each in found["items"] if each["involvedObject"]["kind"] == "Queue"]


def test_the_priority_of_a_group_goes_before_that_of_its_pods(api: Client, cluster: KubeCluster) -> None:
    create_priority(api, "urgent", 1000)
    create(api, node("n0"), *gang("low", 1))
    with scheduling(cluster):
        wait_for("the first runs", lambda: "low-0" in nodes_of(api))
        create(api, *gang("high", 1, priorityClassName="urgent"))
        wait_for("the second has its place", lambda: list(nodes_of(api)) == ["high-0"])


def test_least_resources_beyond_those_of_the_gang_are_named(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), *gang("g", 1, gpus=1, minResources={GPU: 4}), *gang("h", 1, gpus=1, minResources={GPU: 1}))
    with scheduling(cluster):
        wait_for("one is bound", lambda: list(nodes_of(api)) == ["h-0"])
        wait_for("the other says why", lambda: "spec.minResources asks for 4 of nvidia.com/gpu" in reason(api, "g-0"))
