"""Metrics and probes: what a scheduler tells of itself over HTTP, on a port of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import ClassVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from phalanx.kube.pulse import Pulse

REQUEST_WITHIN_S = 5.0
PREFIX = "phalanx_kube"


class Figures(Collector):
    """The metrics of a run. `steps` counts gangs by how far they are, `answers` those of the API server by method and
    status.
    """

    def __init__(
        self, pulse: Pulse, steps: Callable[[], dict[str, int]], answers: Callable[[], dict[tuple[str, int], int]]
    ) -> None:
        self._pulse = pulse
        self._steps = steps
        self._answers = answers

    def collect(self) -> Iterator[Metric]:
        """All metrics as they are now."""
        pulse = self._pulse
        yield GaugeMetricFamily(f"{PREFIX}_leader", "1 on the replica that schedules", int(pulse.leads))
        yield GaugeMetricFamily(f"{PREFIX}_nodes", "Nodes that are known", pulse.nodes)
        jobs = GaugeMetricFamily(f"{PREFIX}_gangs", "Gangs, and pods alone, by how far they are", labels=("step",))
        for step, count in self._steps().items():
            jobs.add_metric((step,), count)
        yield jobs
        yield CounterMetricFamily(f"{PREFIX}_turns", "Decisions that were made", pulse.turns)
        yield CounterMetricFamily(f"{PREFIX}_turn_seconds", "Time that they took", pulse.turns_s)
        requests = CounterMetricFamily(
            f"{PREFIX}_api_requests", "Answers of the API server; 0: none came", labels=("method", "code")
        )
        for (method, code), count in sorted(self._answers().items()):
            requests.add_metric((method, str(code)), count)
        yield requests


class Endpoint:
    """Answers GET /metrics, /healthz and /readyz, and nothing else."""

    def __init__(self, address: tuple[str, int], pulse: Pulse, figures: Figures) -> None:
        registry = CollectorRegistry()
        registry.register(figures)

        class Handler(_Handler):
            answers: ClassVar = {
                "/metrics": lambda: (200, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry)),
                "/healthz": lambda: _probe(pulse.is_alive, "the loop has not come round"),
                "/readyz": lambda: _probe(pulse.is_ready and pulse.is_alive, "not everything is listed yet"),
            }

        self._server = ThreadingHTTPServer(address, Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    def __enter__(self) -> Endpoint:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


Answer = tuple[int, str, bytes]


def _probe(is_so: bool, otherwise: str) -> Answer:
    return (200, "text/plain", b"ok\n") if is_so else (503, "text/plain", f"{otherwise}\n".encode())


class _Handler(BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, Callable[[], Answer]]]
    timeout = REQUEST_WITHIN_S
    server_version, sys_version = "phalanx", ""

    def do_GET(self) -> None:
        """Answers one question."""
        answer = self.answers.get(self.path.partition("?")[0])
        status, kind, body = answer() if answer is not None else (404, "text/plain", b"no such page\n")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing: a probe comes every few seconds."""
