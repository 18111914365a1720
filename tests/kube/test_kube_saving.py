"""Gangs that are asked to save their work before they are evicted, on a real API server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from kube_cluster import KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import POD_PATH, create_priority, events, gang, nodes_of, reason, scheduling
from phalanx.kube.api.client import Client

pytestmark = pytest.mark.needs("kubernetes")


class Trainer:
    """Stands for rank 0 of a gang: an HTTP server that saves when it is let."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_save = threading.Event()
        trainer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                trainer.asked.append(self.path)
                trainer.may_save.wait(30)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self.may_save.set()
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def trainer() -> Iterator[Trainer]:
    running = Trainer()
    yield running
    running.close()


def saving(members: list[dict[str, Any]], trainer: Trainer, within: str) -> list[dict[str, Any]]:
    """A gang whose first pod is asked to save its work."""
    address = f":{trainer.server.server_port}/save"
    members[1]["metadata"]["annotations"] = {"phalanx.dev/save": address, "phalanx.dev/save-within": within}
    return members


def run_at(api: Client, name: str, address: str) -> None:
    """Has a pod be at an address, as its kubelet would."""
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    api.patch(f"{POD_PATH}/{name}/status", {"status": status})


def test_a_gang_is_evicted_once_its_work_is_saved(api: Client, cluster: KubeCluster, trainer: Trainer) -> None:
    create(api, node("n0"), node("n1"))
    with scheduling(cluster):
        create(api, *saving(gang("low", 2), trainer, "30"))
        wait_for("the gang is bound", lambda: len(nodes_of(api)) == 2)
        run_at(api, "low-0", "127.0.0.1")
        create_priority(api, "urgent", 1000)
        create(api, pod("urgent", 8, priorityClassName="urgent"))
        wait_for("it is asked to save", lambda: trainer.asked == ["/save"])
        assert sorted(nodes_of(api)) == ["low-0", "low-1"]
        trainer.may_save.set()
        wait_for("the gang is evicted whole", lambda: list(nodes_of(api)) == ["urgent"])


def test_a_gang_that_does_not_save_in_time_is_evicted_all_the_same(
    api: Client, cluster: KubeCluster, trainer: Trainer
) -> None:
    create(api, node("n0"), node("n1"))
    with scheduling(cluster):
        create(api, *saving(gang("low", 2), trainer, "1"))
        wait_for("the gang is bound", lambda: len(nodes_of(api)) == 2)
        run_at(api, "low-0", "127.0.0.1")
        create_priority(api, "urgent", 1000)
        create(api, pod("urgent", 8, priorityClassName="urgent"))
        wait_for("the gang is evicted whole", lambda: list(nodes_of(api)) == ["urgent"])
        wait_for("an event says so", lambda: "it did not save its work within 1 s" in events(api, "low-0"))


def test_an_address_that_cannot_be_read_is_told_before_the_pod_is_bound(api: Client, cluster: KubeCluster) -> None:
    odd = pod("odd", 1)
    odd["metadata"]["annotations"] = {"phalanx.dev/save": "http://elsewhere/save"}
    create(api, node("n0"), odd)
    with scheduling(cluster):
        wait_for("it says what was expected", lambda: "expected a port and a path" in reason(api, "odd"))
        assert not nodes_of(api)
