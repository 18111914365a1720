"""The client and its watches against a real API server."""

from __future__ import annotations

import gc
import queue
from dataclasses import replace
from typing import Any

import pytest

from kube_cluster import DEFINITIONS, KubeCluster, create, wait_for
from kube_objects import node, pod
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import (
    ConflictError,
    ForbiddenError,
    NotFoundError,
    UnauthorizedError,
    UnreachableError,
)
from phalanx.kube.api.reflector import Broken, Changed, Listed, News, Reflector
from phalanx.kube.gangs.discovery import HYPER_NODES, QUEUES, served_groups
from phalanx.kube.gangs.groups import COMPOSITE, JOB, JOB_SET, LEADER_WORKER_SET, NATIVE, PLUGINS, RAY, VOLCANO
from phalanx.kube.mirror import NODES, PODS
from phalanx.kube.objects.group import PodGroup
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod

pytestmark = pytest.mark.needs("kubernetes")


def test_the_server_says_which_dialects_of_pod_groups_it_has(api: Client) -> None:
    assert {dialect: path for dialect, (path, _) in served_groups(api).items()} == {
        NATIVE: "/apis/scheduling.k8s.io/v1beta1/podgroups",
        COMPOSITE: "/apis/scheduling.k8s.io/v1alpha3/compositepodgroups",
        PLUGINS: "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
        VOLCANO: "/apis/scheduling.volcano.sh/v1beta1/podgroups",
        JOB: "/apis/batch/v1/jobs",
        JOB_SET: "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
        LEADER_WORKER_SET: "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets",
        RAY: "/apis/ray.io/v1/rayclusters",
        HYPER_NODES: "/apis/topology.volcano.sh/v1alpha1/hypernodes",
        QUEUES: "/apis/scheduling.volcano.sh/v1beta1/queues",
    }


def test_a_request_that_is_answered_after_the_client_was_closed_leaves_no_connection(cluster: KubeCluster) -> None:
    """An eviction may still be under way when a run ends. A socket that is left open is an error of every test."""
    client = Client(cluster.access())
    client.close()
    client.ask("GET", "/version")
    del client
    gc.collect()


def test_errors_say_what_was_asked_and_what_the_server_said(api: Client, cluster: KubeCluster) -> None:
    with pytest.raises(NotFoundError, match=r'GET /api/v1/nodes/none: 404: nodes "none" not found'):
        api.get("/api/v1/nodes/none", KubeNode)
    create(api, node("n0"))
    with pytest.raises(ConflictError, match=r'POST /api/v1/nodes: 409: nodes "n0" already exists'):
        create(api, node("n0"))
    with Client(replace(cluster.access(), token=lambda: "wrong")) as stranger, pytest.raises(UnauthorizedError):
        stranger.get("/api/v1/nodes/n0", KubeNode)
    with Client(replace(cluster.access(), token=lambda: "weak")) as weak, pytest.raises(ForbiddenError, match="weak"):
        weak.get("/api/v1/nodes/n0", KubeNode)


def test_a_server_that_is_not_there_is_named(cluster: KubeCluster) -> None:
    with (
        Client(replace(cluster.access(), port=1)) as nowhere,
        pytest.raises(UnreachableError, match=r"the API server at https://127\.0\.0\.1:1 does not answer"),
    ):
        nowhere.get("/api/v1/nodes/n0", KubeNode)


def test_a_watch_goes_on_where_it_was_after_its_connection_broke(api: Client) -> None:
    inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
    reflector = Reflector(api, NODES, "/api/v1/nodes", KubeNode, inbox.put)
    reflector.start()
    try:
        assert inbox.get(timeout=10) == Listed(NODES, ())
        create(api, node("n0"))
        assert _name(inbox.get(timeout=10)) == "n0"
        _drain(inbox)
        reflector.cut()
        create(api, node("n1"))
        wait_for("n1 is told", lambda: _name(inbox.get(timeout=10)) == "n1")
        assert reflector.lists == 1
    finally:
        reflector.close()


def test_a_watch_whose_version_is_compacted_lists_everything_again(api: Client, cluster: KubeCluster) -> None:
    inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
    create(api, node("n0"))
    reflector = Reflector(api, NODES, "/api/v1/nodes", KubeNode, inbox.put)
    reflector.start()
    try:
        assert isinstance(inbox.get(timeout=10), Listed)
        cluster.kill_apiserver()
        reflector._version = "1"
        cluster.etcd_compact()
        cluster.start_apiserver()
        wait_for("all is listed again", lambda: reflector.lists == 2)
        listed = [news for news in _drain(inbox) if isinstance(news, Listed)]
        assert [each.metadata.name for each in listed[-1].objects] == ["n0"]
    finally:
        reflector.close()


def test_an_object_whose_fields_are_not_what_they_should_be_counts_as_absent(api: Client) -> None:
    """The definitions of projects refuse those; a site may have laxer ones."""
    inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
    path = lax_groups(api)
    reflector = Reflector(api, PLUGINS, path, PodGroup, inbox.put)
    api.post(path, lax_group("odd", "two"))
    reflector.start()
    try:
        assert inbox.get(timeout=10) == Listed(PLUGINS, ())
        api.post(path, lax_group("odder", "two"))
        api.post(path, lax_group("fine", 2))
        told = [inbox.get(timeout=10) for _ in range(2)]
        assert [(each.object.metadata.name, each.gone) for each in told if isinstance(each, Changed)] == [
            ("odder", True),
            ("fine", False),
        ]
    finally:
        reflector.close()


def lax_groups(api: Client) -> str:
    """Defines groups of which every field is kept, and returns where they are."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {
        "group": "phalanx.test",
        "scope": "Cluster",
        "names": {"kind": "PodGroup", "plural": "podgroups"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }
    kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    api.post(DEFINITIONS, {**kind, "metadata": {"name": "podgroups.phalanx.test"}, "spec": spec})
    path = "/apis/phalanx.test/v1/podgroups"
    wait_for("they are served", lambda: KubeCluster.serves(api, path))
    return path


def lax_group(name: str, least: object) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": "phalanx.test/v1", "kind": "PodGroup", "metadata": metadata, "spec": {"minMember": least}}


def test_a_watch_that_is_forbidden_ends_with_what_the_server_said(cluster: KubeCluster) -> None:
    inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
    with Client(replace(cluster.access(), token=lambda: "weak")) as weak:
        reflector = Reflector(weak, PODS, "/api/v1/pods", Pod, inbox.put)
        reflector.start()
        told = inbox.get(timeout=10)
        reflector.close()
    assert isinstance(told, Broken)
    assert isinstance(told.error, ForbiddenError)


def test_pods_are_received_with_what_scheduling_reads(api: Client) -> None:
    create(api, node("n0"), pod("a", 2))
    found = api.get("/api/v1/namespaces/default/pods/a", Pod)
    assert (found.spec.scheduler_name, found.spec.priority, found.status.phase) == ("phalanx", 0, "Pending")


def _name(news: News) -> str:
    return news.object.metadata.name if isinstance(news, Changed) else ""


def _drain(inbox: queue.SimpleQueue[News]) -> list[News]:
    found = []
    while not inbox.empty():
        found.append(inbox.get())
    return found
