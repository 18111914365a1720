"""Share: what part of a scheduler's processor time goes to HTTP, to JSON, and to the rest.

`python -m phalanx.bench.kubernetes.share kube …` is the verb with a clock around each of these; it writes the times to
the file that PHALANX_BENCH_SHARE names when it ends.
"""

from __future__ import annotations

import http.client
import os
import runpy
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from phalanx.kube.api.client import Client
from phalanx.kube.api.reflector import Reflector
from phalanx.kube.scheduler import Scheduler

FILE = "PHALANX_BENCH_SHARE"


class Times(msgspec.Struct, frozen=True):
    """Seconds of the processor: of the whole process, in HTTP, in JSON, and in turns of the scheduler without these."""

    process: float
    http: float
    json: float
    turns: float


class Clock:
    """Adds up processor time by kind. What is measured within something else is not counted there."""

    def __init__(self) -> None:
        self.spent_s: dict[str, float] = {}
        self._inner = threading.local()
        self._lock = threading.Lock()

    def around(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose time is added to a kind."""

        def timed(*arguments: Any, **named: Any) -> Any:
            inner_before, self._inner.s = getattr(self._inner, "s", 0.0), 0.0
            began = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                took = time.thread_time() - began
                with self._lock:
                    self.spent_s[kind] = self.spent_s.get(kind, 0.0) + took - self._inner.s
                self._inner.s = inner_before + took

        return timed


def install(clock: Clock) -> None:
    """Puts the clock around requests, the lines of watches, what reads and writes JSON, and turns."""
    for owner, name, kind in (
        (Client, "_ask_once", "http"),
        (http.client.HTTPResponse, "readline", "http"),
        (msgspec.json, "encode", "json"),
        (msgspec.json, "decode", "json"),
        (Reflector, "_decoded", "json"),
        (Scheduler, "turn", "turns"),
    ):
        setattr(owner, name, clock.around(kind, getattr(owner, name)))


def main() -> None:
    """Runs the verb, and writes the times when it has ended."""
    clock = Clock()
    install(clock)
    try:
        runpy.run_module("phalanx", run_name="__main__")
    finally:
        spent = (clock.spent_s.get(kind, 0.0) for kind in ("http", "json", "turns"))
        Path(os.environ[FILE]).write_bytes(msgspec.json.encode(Times(time.process_time(), *spent)))


if __name__ == "__main__":
    main()
