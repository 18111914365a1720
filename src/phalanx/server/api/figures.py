"""Figures about requests: how many, how they ended and how long they took."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class HttpFigures:
    """What one worker counts of its requests."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "phalanx_http_requests_total",
            "Requests answered by this worker.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "phalanx_http_request_seconds",
            "Time from a request to the start of its answer.",
            ("method", "route"),
            buckets=BOUNDS_S,
            registry=self.registry,
        )
        self.streams = Gauge(
            "phalanx_http_streams",
            "Event and log streams that are open.",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.refused = Counter(
            "phalanx_http_refused_total",
            "Requests refused before they reached a route.",
            ("code",),
            registry=self.registry,
        )

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts one request."""
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(method, route).observe(seconds)
