"""Lists that come by a watch: on an etcd that serves them, and from servers that do not understand."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

import kube_cluster
from kube_cluster import KubeCluster, create, folder, wait_for
from kube_objects import node, pod
from kube_site import gang, nodes_of, scheduling
from phalanx.kube.api import reflector as reflecting
from phalanx.kube.api.access import Access
from phalanx.kube.api.client import Client
from phalanx.kube.api.reflector import Changed, Listed, News, Page, Reflector
from phalanx.kube.mirror import NODES, PODS
from phalanx.kube.objects.meta import Stored
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod

RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
CONFIGS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    """One on an etcd that can tell how far a watch has come."""
    with kube_cluster.running(tmp_path_factory.mktemp("kube"), etcd=folder() / "etcd") as running:
        yield running


@contextmanager
def watching(client: Client, kind: str, path: str, as_type: type[Any]) -> Iterator[queue.SimpleQueue[News]]:
    inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
    reflector = Reflector(client, kind, path, as_type, inbox.put)
    reflector.start()
    try:
        yield inbox
    finally:
        reflector.close()


def allow(api: Client, *verbs: str) -> None:
    """Allows the user `weak` something with config maps."""
    meta = {"metadata": {"name": "weak"}}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}
    group = "rbac.authorization.k8s.io"
    user = {"apiGroup": group, "kind": "User", "name": "weak"}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": "weak"}
    api.post(f"{RIGHTS}/clusterroles", {**meta, "rules": [rule]})
    api.post(f"{RIGHTS}/clusterrolebindings", {**meta, "roleRef": role, "subjects": [user]})


@pytest.mark.needs("etcd36")
def test_all_objects_come_in_the_order_of_a_list_without_one(api: Client, cluster: KubeCluster) -> None:
    """One who may not list gets them."""
    for name in ("b", "a-1", "a", "c"):
        api.post(CONFIGS, {"metadata": {"name": name}})
    listed = [msgspec.json.decode(each, type=Stored) for each in api.get(CONFIGS, Page).items or ()]
    allow(api, "watch")
    with Client(replace(cluster.access(), token=lambda: "weak")) as weak, watching(weak, "c", CONFIGS, Stored) as inbox:
        assert inbox.get(timeout=20) == Listed("c", tuple(listed))
        api.post(CONFIGS, {"metadata": {"name": "later"}})
        told = inbox.get(timeout=20)
    assert isinstance(told, Changed)
    assert told.object.metadata.name == "later"


@pytest.mark.needs("etcd36")
def test_all_come_again_after_the_version_was_compacted(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"))
    inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
    reflector = Reflector(api, NODES, "/api/v1/nodes", KubeNode, inbox.put)
    reflector.start()
    try:
        assert isinstance(inbox.get(timeout=20), Listed)
        cluster.kill_apiserver()
        reflector._version = "1"
        cluster.etcd_compact()
        cluster.start_apiserver()
        wait_for("all come again", lambda: reflector.lists == 2)
        create(api, node("n1"))
        wait_for("the watch goes on", lambda: _name(inbox.get(timeout=20)) == "n1")
    finally:
        reflector.close()


def _name(news: News) -> str:
    return news.object.metadata.name if isinstance(news, Changed) else ""


@pytest.mark.needs("etcd36")
def test_a_scheduler_that_lists_nothing_binds_gangs(api: Client, cluster: KubeCluster) -> None:
    create(api, *(node(f"n{i}") for i in range(4)), *gang("g", 2))
    with scheduling(cluster) as run:
        wait_for("the first gang is bound", lambda: len(nodes_of(api)) == 2)
        create(api, *gang("next", 2))
        wait_for("the next is bound", lambda: len(nodes_of(api)) == 4)
        assert all(each._streams for each in run.reflectors.values())


class Server(BaseHTTPRequestHandler):
    """An API server with one pod that answers a watch of all in a way of its own."""

    status = 200
    watch: tuple[dict[str, Any], ...] = ()
    asked: list[str]

    def hold(self) -> None:
        """Delays no answer unless a test says so."""

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if "sendInitialEvents" in self.path:
            self.hold()
            self._answer(self.status, *self.watch)
        elif "watch=1" in self.path:
            self._answer(200, {"type": "MODIFIED", "object": described("p", "8")})
        else:
            self._answer(200, {"metadata": {"resourceVersion": "7"}, "items": [described("p", "5")]})

    def _answer(self, status: int, *lines: dict[str, Any]) -> None:
        self.send_response(status)
        self.end_headers()
        for line in lines:
            self.wfile.write(msgspec.json.encode(line) + b"\n")

    def log_message(self, *args: object) -> None:
        """Nothing."""


def described(name: str, version: str) -> dict[str, Any]:
    written = pod(name)
    written["metadata"]["resourceVersion"] = version
    return written


@contextmanager
def answering(status: int, *watch: dict[str, Any]) -> Iterator[tuple[Client, list[str]]]:
    asked: list[str] = []
    kind = type("Server", (Server,), {"status": status, "watch": watch, "asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            with Client(Access("127.0.0.1", server.server_address[1], None, lambda: "")) as client:
                yield client, asked
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "watch"),
    [
        (422, ({"message": "sendInitialEvents is forbidden for watch", "code": 422},)),
        (400, ({"message": "unknown parameter", "code": 400},)),
        (200, ({"type": "ERROR", "object": {"message": "RequestWatchProgress is disabled", "code": 500}},)),
        (200, ({"type": "ADDED", "object": described("p", "5")},)),
        (
            200,
            (
                {"type": "ADDED", "object": described("p", "5")},
                {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "6"}}},
            ),
        ),
    ],
    ids=["422", "400", "old etcd", "ends", "other bookmark"],
)
def test_a_server_that_cannot_is_asked_once_and_then_for_lists(status: int, watch: tuple[dict[str, Any], ...]) -> None:
    with answering(status, *watch) as (client, asked), watching(client, PODS, "/api/v1/pods", Pod) as inbox:
        first, second = inbox.get(timeout=20), inbox.get(timeout=20)
    assert isinstance(first, Listed)
    assert [each.metadata.resource_version for each in first.objects] == ["5"]
    assert isinstance(second, Changed)
    assert second.object.metadata.resource_version == "8"
    assert ["sendInitialEvents" in each for each in asked[:3]] == [True, False, False]
    assert sum("sendInitialEvents" in each for each in asked) == 1


def test_silence_before_all_are_told_is_taken_for_not_understanding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflecting, "STREAM_SILENCE_S", 0.2)
    with answering(200) as (client, asked), held(monkeypatch), watching(client, PODS, "/api/v1/pods", Pod) as inbox:
        assert isinstance(inbox.get(timeout=20), Listed)
    assert ["sendInitialEvents" in each for each in asked[:2]] == [True, False]


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Meanwhile the server says nothing to a watch that is to begin with all."""
    release = threading.Event()
    monkeypatch.setattr(Server, "hold", lambda _: release.wait(20))
    try:
        yield
    finally:
        release.set()
