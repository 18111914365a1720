"""Custom resources that are just being defined."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import msgspec
import pytest

from phalanx.kube.api.access import Access
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import NotFoundError
from phalanx.kube.gangs import discovery, lookout
from phalanx.kube.gangs.discovery import served_groups
from phalanx.kube.gangs.groups import RAY
from phalanx.kube.gangs.lookout import Lookout, Served


class Server(BaseHTTPRequestHandler):
    """Names KubeRay's group from the start, and has its version only when it was asked for often enough."""

    has: ClassVar[dict[str, Any]] = {
        "/apis": {"groups": [{"name": "ray.io", "versions": [{"version": "v1"}]}]},
        "/apis/ray.io/v1": {"resources": [{"name": "rayclusters"}]},
    }
    missing: ClassVar[list[str]]

    def do_GET(self) -> None:
        if self.path in self.missing:
            self.missing.remove(self.path)
            self.send_error(404)
        elif self.path in self.has:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(msgspec.json.encode(self.has[self.path]))
        else:
            self.send_error(404)

    def log_message(self, *args: object) -> None:
        """Nothing."""


@contextmanager
def answering(missing: int, path: str = "/apis/ray.io/v1") -> Iterator[Client]:
    """A client of a server that has the version, or another path, only after so many requests for it."""
    with serving(type("Server", (Server,), {"missing": [path] * missing})) as client:
        yield client


@contextmanager
def serving(kind: type[Server]) -> Iterator[Client]:
    """A client of a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            with Client(Access("127.0.0.1", server.server_address[1])) as client:
                yield client
        finally:
            server.shutdown()
            thread.join()


def test_a_version_that_is_named_before_it_is_there_is_waited_for() -> None:
    with answering(2) as client:
        assert {dialect: path for dialect, (path, _) in served_groups(client).items()} == {
            RAY: "/apis/ray.io/v1/rayclusters"
        }


def test_one_that_never_comes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "SETTLES_S", 0.2)
    with answering(1000) as client, pytest.raises(NotFoundError, match=r"/apis/ray\.io/v1"):
        served_groups(client)


@contextmanager
def looking(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[queue.SimpleQueue[Served]]:
    """What a lookout tells that looks all the time."""
    monkeypatch.setattr(lookout, "LOOK_S", 0.01)
    told: queue.SimpleQueue[Served] = queue.SimpleQueue()
    looks = Lookout(client, told.put)
    looks.start()
    try:
        yield told
    finally:
        looks.close()


def test_a_kind_that_one_look_misses_is_there_still_and_one_that_two_miss_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An API server that has just been restarted names no custom resources for a moment."""
    groups = Server.has["/apis"]
    looks: list[Any] = [groups, {"groups": []}, groups, {"groups": []}, {"groups": []}]

    class Restarted(Server):
        missing: ClassVar[list[str]] = []

        def do_GET(self) -> None:
            self.has = {**Server.has, "/apis": looks.pop(0) if self.path == "/apis" and looks else {"groups": []}}
            super().do_GET()

    with serving(Restarted) as client, looking(client, monkeypatch) as told:
        assert [list(told.get(timeout=10).kinds) for _ in range(5)] == [[RAY], [RAY], [RAY], [RAY], []]


def test_a_look_that_the_server_refuses_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(3, "/apis") as client, looking(client, monkeypatch) as told:
        assert [list(told.get(timeout=10).kinds) for _ in range(2)] == [[RAY]] * 2
