"""Custom resources that are defined and deleted while `phalanx kube` runs, against a real API server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import kube_cluster
from kube_cluster import DEFINITIONS, KubeCluster, create, define, definitions, path_of, wait_for
from kube_objects import node, pod
from kube_site import nodes_of, reason, scheduling, verb
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import NotFoundError
from phalanx.kube.gangs import lookout
from phalanx.kube.gangs.discovery import HYPER_NODES, QUEUES
from phalanx.kube.gangs.groups import JOB_SET, VOLCANO

pytestmark = pytest.mark.needs("kubernetes")

GROUP = ("scheduling.volcano.sh", "v1beta1", "PodGroup")
QUEUE = ("scheduling.volcano.sh", "v1beta1", "Queue")
HYPER_NODE = ("topology.volcano.sh", "v1alpha1", "HyperNode")
SETS = ("jobset.x-k8s.io", "v1alpha2", "JobSet")
ALL = (GROUP, QUEUE, HYPER_NODE, SETS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    """One as it was installed, without the custom resources of others."""
    with kube_cluster.running(tmp_path_factory.mktemp("kube"), has_custom=False) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_is_defined(api: Client) -> Iterator[None]:
    """Deletes what a test has defined."""
    yield
    delete(api, *ALL)


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has what is served be looked at several times a second."""
    monkeypatch.setattr(lookout, "LOOK_S", 0.2)


def delete(api: Client, *customs: tuple[str, str, str]) -> None:
    """Deletes custom resources with all their objects, and waits until the server has them no more."""
    for group, _, kind in customs:
        with suppress(NotFoundError):
            api.delete(f"{DEFINITIONS}/{kind.lower()}s.{group}")
    for group, _, kind in customs:
        path = f"{DEFINITIONS}/{kind.lower()}s.{group}"
        wait_for(f"{path} is gone", lambda path=path: not KubeCluster.serves(api, path))  # type: ignore[misc]


def volcano(kind: tuple[str, str, str], name: str, **spec: Any) -> dict[str, Any]:
    """An object of a custom resource of Volcano."""
    metadata = {"name": name} if kind is not GROUP else {"name": name, "namespace": "default"}
    return {"apiVersion": f"{kind[0]}/{kind[1]}", "kind": kind[2], "metadata": metadata, "spec": spec}


def member(name: str, group: str) -> dict[str, Any]:
    """A pod of a PodGroup of Volcano, which takes a node."""
    found = pod(name, 8)
    found["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": group}
    return found


def bind_gang(api: Client, cluster: KubeCluster) -> None:
    """Has a gang of Volcano bound whose definition came after the start, and then its group."""
    create(api, node("n0"), node("n1"), member("a", "g"), member("b", "g"))
    wait_for("its pods wait for their group", lambda: "default/g (scheduling.volcano.sh) is not" in reason(api, "b"))
    define(api, definitions(), GROUP)
    create(api, volcano(GROUP, "g", minMember=2))
    wait_for("both are bound", lambda: sorted(nodes_of(api)) == ["a", "b"])


@pytest.mark.usefixtures("looks_often")
def test_a_gang_whose_kind_of_group_is_defined_later_is_bound_whole(api: Client, cluster: KubeCluster) -> None:
    with scheduling(cluster) as run:
        assert VOLCANO not in run.reflectors
        bind_gang(api, cluster)


@pytest.mark.usefixtures("looks_often")
def test_the_definition_of_a_group_that_is_deleted_leaves_its_gang_bound(api: Client, cluster: KubeCluster) -> None:
    with scheduling(cluster) as run:
        bind_gang(api, cluster)
        bound = nodes_of(api)
        threads = threading.active_count()
        delete(api, GROUP)
        wait_for("it is watched no more", lambda: VOLCANO not in run.reflectors)
        assert not run.mirror.groups
        wait_for("its thread has ended", lambda: threading.active_count() < threads)
        create(api, node("n2"), pod("next", 8))
        wait_for("a pod of no group is bound beside it", lambda: nodes_of(api) == {**bound, "next": "n2"})
        create(api, member("late", "g"))
        wait_for("another waits for its group", lambda: "default/g (scheduling.volcano.sh)" in reason(api, "late"))
        define(api, definitions(), GROUP)
        create(api, node("n3"), volcano(GROUP, "g", minMember=1))
        wait_for("which is watched again", lambda: nodes_of(api).get("late") == "n3")


@pytest.mark.usefixtures("looks_often")
def test_queues_and_hyper_nodes_that_are_defined_later_hold_until_they_are_deleted(
    api: Client, cluster: KubeCluster
) -> None:
    with scheduling(cluster) as run:
        define(api, definitions(), *ALL)
        named = {"type": "Node", "selector": {"exactMatch": {"name": "n0"}}}
        closed = volcano(QUEUE, "closed")
        create(api, node("n0"), closed, volcano(HYPER_NODE, "h", tier=1, members=[named]))
        api.patch(f"{path_of(closed)}/closed/status", {"status": {"state": "Closed"}}, "merge-patch")
        create(api, volcano(GROUP, "g", minMember=1, queue="closed"), member("a", "g"))
        wait_for("its queue is closed", lambda: reason(api, "a") == "its queue closed is closed")
        wait_for("all is watched", lambda: {QUEUES, HYPER_NODES, JOB_SET} <= run.reflectors.keys())
        wait_for("the HyperNode is known", lambda: list(run.mirror.hyper_nodes) == ["h"])
        delete(api, QUEUE, HYPER_NODE, SETS)
        wait_for("no queue keeps it from being bound", lambda: nodes_of(api) == {"a": "n0"})
        wait_for("they are watched no more", lambda: not {QUEUES, HYPER_NODES, JOB_SET} & run.reflectors.keys())
        assert not run.mirror.hyper_nodes


@pytest.mark.usefixtures("looks_often")
def test_a_kind_that_comes_later_and_may_not_be_read_is_told_and_tried_again(api: Client, cluster: KubeCluster) -> None:
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/phalanx"
    rules = api.get(role, dict[str, Any])["rules"]
    others = [each for each in rules if each["apiGroups"] != ["scheduling.volcano.sh"]]
    lines: list[str] = []
    api.patch(role, {"rules": others}, "merge-patch")
    try:
        with scheduling(cluster, say=lines.append):
            create(api, node("n0"), node("n1"), pod("alone", 8))
            define(api, definitions(), GROUP)
            wait_for("that is told", lambda: any("cannot be watched" in each for each in lines))
            wait_for("a pod of no group is bound", lambda: list(nodes_of(api)) == ["alone"])
            api.patch(role, {"rules": rules}, "merge-patch")
            create(api, volcano(GROUP, "g", minMember=1), member("a", "g"))
            wait_for("the gang is bound", lambda: sorted(nodes_of(api)) == ["a", "alone"])
    finally:
        api.patch(role, {"rules": rules}, "merge-patch")
    assert sum("cannot be watched" in each for each in lines) == 1
    assert any('podgroups.scheduling.volcano.sh is forbidden: User "scheduler"' in each for each in lines)


def test_the_verb_says_what_it_watches_from_then_on(api: Client, cluster: KubeCluster) -> None:
    with verb(cluster) as process:
        assert process.stderr is not None
        assert b"scheduling" in process.stderr.readline()
        bind_gang(api, cluster)
        assert process.stderr.readline() == (
            b"scheduling.volcano.sh: served by the API server from now on, "
            b"and watched at /apis/scheduling.volcano.sh/v1beta1/podgroups\n"
        )
