"""`phalanx kube` against the API server of an older Kubernetes, which has no groups of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kube_cluster
from kube_cluster import KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import create_priority, events, gang, nodes_of, pods, reason, scheduling
from phalanx.kube.api.client import Client
from phalanx.kube.gangs.discovery import served_groups
from phalanx.kube.gangs.groups import NATIVE, PLUGINS, VOLCANO
from phalanx.kube.mirror import PODS

pytestmark = pytest.mark.needs("kube134")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    """The older one."""
    with kube_cluster.running(tmp_path_factory.mktemp("kube"), "older_version") as running:
        yield running


def test_the_server_has_the_dialects_of_others_and_none_of_its_own(api: Client) -> None:
    found = served_groups(api)
    assert NATIVE not in found
    assert {PLUGINS, VOLCANO} <= found.keys()


def test_a_gang_by_its_label_is_bound_whole_or_says_why(api: Client, cluster: KubeCluster) -> None:
    create(api, *(node(f"n{i}") for i in range(4)), *gang("g", 4))
    with scheduling(cluster):
        wait_for("four pods run", lambda: [each.status.phase for each in pods(api).values()] == ["Running"] * 4)
        create(api, *gang("next", 2))
        wait_for("the next says why", lambda: "16 GPUs and 0 are free" in reason(api, "next-1"))


def test_a_group_of_volcano_is_bound_whole(api: Client, cluster: KubeCluster) -> None:
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "v", "namespace": "default"},
        "spec": {"minMember": 2},
    }
    members = [pod(f"v-{i}", 8) for i in range(2)]
    for each in members:
        each["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "v"}
    create(api, node("n0"), node("n1"), group, members[0])
    with scheduling(cluster):
        wait_for("the first waits for the second", lambda: "2 pods of PodGroup default/v" in reason(api, "v-0"))
        create(api, members[1])
        wait_for("both are bound", lambda: sorted(nodes_of(api).values()) == ["n0", "n1"])


def test_a_more_important_pod_has_a_whole_gang_evicted(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), node("n1"), *gang("low", 2))
    with scheduling(cluster):
        wait_for("the gang runs", lambda: [each.status.phase for each in pods(api).values()] == ["Running"] * 2)
        create_priority(api, "urgent", 1000)
        create(api, pod("urgent", 8, priorityClassName="urgent"))
        wait_for("the urgent pod is alone", lambda: list(nodes_of(api)) == ["urgent"])
        wait_for("an event says so", lambda: any("preempted" in each for each in events(api, "low-1")))


def test_the_scheduler_and_the_server_may_be_restarted(api: Client, cluster: KubeCluster) -> None:
    create(api, *(node(f"n{i}") for i in range(4)), *gang("g", 2))
    with scheduling(cluster):
        wait_for("the gang is bound", lambda: len(nodes_of(api)) == 2)
    before = nodes_of(api)
    with scheduling(cluster) as run:
        cluster.kill_apiserver()
        run.reflectors[PODS]._version = "1"
        cluster.etcd_compact()
        cluster.start_apiserver()
        create(api, *gang("next", 2))
        wait_for("the next gang is bound", lambda: len(nodes_of(api)) == 4)
        assert before.items() <= nodes_of(api).items()
        assert run.reflectors[PODS].lists == 2
