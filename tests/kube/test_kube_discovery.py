"""Custom resources that are just being defined."""

from __future__ import annotations

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
from phalanx.kube.gangs import discovery
from phalanx.kube.gangs.discovery import served_groups
from phalanx.kube.gangs.groups import RAY


class Server(BaseHTTPRequestHandler):
    """Names KubeRay's group from the start, and has its version only when it was asked for often enough."""

    has: ClassVar[dict[str, Any]] = {
        "/apis/ray.io": {"versions": [{"version": "v1"}]},
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
def answering(missing: int) -> Iterator[Client]:
    """A client of a server that has the version only after so many requests for it."""
    kind = type("Server", (Server,), {"missing": ["/apis/ray.io/v1"] * missing})
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
