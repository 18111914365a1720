"""Metrics of the loop, written to the store now and then and read by the API."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from phalanx.engine.state.state import State

EVERY_S = 1.0
BOUNDS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
"""Upper bounds of the classes into which durations are counted; one more holds the rest."""


class Durations(msgspec.Struct):
    """How often something took how long."""

    count: int = 0
    total_s: float = 0.0
    classes: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))

    def add(self, seconds: float, bounds_s: Sequence[float] = BOUNDS_S) -> None:
        """Counts one more, in the class of the first bound that it does not exceed."""
        self.count += 1
        self.total_s += seconds
        self.classes[sum(seconds > bound for bound in bounds_s)] += 1


class Figures(msgspec.Struct):
    """What the loop tells of itself."""

    started_ms: int = 0
    seq: int = -1
    now_ms: int = 0
    turns: Durations = msgspec.field(default_factory=Durations)
    commits: Durations = msgspec.field(default_factory=Durations)
    decisions: Durations = msgspec.field(default_factory=Durations)
    requests: int = 0
    events: int = 0
    jobs_in_line: int = 0
    gpus_in_line: int = 0
    attempts: int = 0
    advice_kept: int = 0


class LoopMetrics:
    """Counts and times what the loop does. `publish` gets the figures, as JSON, about once a second."""

    def __init__(self, publish: Callable[[bytes], None], started_ms: int) -> None:
        self._publish = publish
        self._figures = Figures(started_ms=started_ms)
        self._published_s = 0.0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Times a turn."""
        with _timed(self._figures.turns):
            yield

    @contextmanager
    def decision(self) -> Iterator[None]:
        """Times a decision."""
        with _timed(self._figures.decisions):
            yield

    @contextmanager
    def commit(self, requests: int, events: int) -> Iterator[None]:
        """Times a transaction."""
        self._figures.requests += requests
        self._figures.events += events
        with _timed(self._figures.commits):
            yield

    def advice_kept(self) -> None:
        """Counts a time at which a policy's solver had no answer, so that the last one was kept."""
        self._figures.advice_kept += 1

    def measure(self, state: State) -> None:
        """Publishes the figures, if it is time."""
        now_s = time.monotonic()
        if now_s - self._published_s < EVERY_S:
            return
        self._published_s = now_s
        figures = self._figures
        figures.seq, figures.now_ms = state.seq, state.now
        figures.jobs_in_line, figures.gpus_in_line = state.in_line, state.in_line_gpus
        figures.attempts = sum(map(len, state.runs.values()))
        self._publish(msgspec.json.encode(figures))


@contextmanager
def _timed(durations: Durations) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        durations.add(time.perf_counter() - start)
