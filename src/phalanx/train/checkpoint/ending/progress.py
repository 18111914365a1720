"""Telling the scheduler how far training is and what stopping it would cost, and hearing what it wants."""

from __future__ import annotations

import json
import logging
import os
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

URL = "PHALANX_PROGRESS_URL"
TOKEN = "PHALANX_PROGRESS_TOKEN"
CA_FILE = "PHALANX_CA_FILE"
INTERVAL_S = 5.0
LISTEN_S = 1.0
"""How often the scheduler is asked for notices between reports. A report is a record for ever; a question is not."""

TIMEOUT_S = 5.0

NO_SUCH_QUESTION = (404, 405, 501)
"""What a server answers that is older than these questions; it tells its notices in answer to reports."""

log = logging.getLogger("phalanx.checkpoint")


@dataclass(frozen=True, slots=True)
class Progress:
    """What is reported. Stopping costs the time that it takes to come back, beside all since the last durable step."""

    step: int
    durable_step: int
    stop_cost_ms: int
    samples_per_s: float = 0.0
    memory_gb: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)


def trusted() -> ssl.SSLContext:
    """The system's certificates, and that of a server which has one of its own."""
    trust = ssl.create_default_context()
    trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if os.environ.get(CA_FILE):
        trust.load_verify_locations(os.environ[CA_FILE])
    return trust


class ProgressReporter:
    """Sends the newest progress now and then, from a thread of its own, and asks in between whether the scheduler wants
    something; a server that is away is tried again.
    """

    def __init__(
        self,
        on_checkpoint: Callable[[float, bool], None],
        interval_s: float = INTERVAL_S,
        listen_s: float = LISTEN_S,
    ) -> None:
        self._url, self._token = os.environ.get(URL, ""), os.environ.get(TOKEN, "")
        self._on_checkpoint = on_checkpoint
        self._interval_s, self._listen_s = interval_s, listen_s
        self._newest: Progress | None = None
        self._wake = threading.Event()
        self._closed = False
        self._silent = False
        self._heard: tuple[Any, Any] = (None, None)
        self._thread = threading.Thread(target=self._run, daemon=True, name="progress")
        if self._url:
            self._thread.start()

    @property
    def is_on(self) -> bool:
        return bool(self._url)

    def tell(self, progress: Progress, at_once: bool = False) -> None:
        """Takes the newest progress; it is sent at the next opportunity."""
        self._newest = progress
        if at_once:
            self._wake.set()

    def close(self) -> None:
        """Sends what is left and ends."""
        self._closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=TIMEOUT_S + 1)

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._closed:
            is_told = self._wake.wait(min(self._listen_s, self._interval_s))
            self._wake.clear()
            progress = self._newest
            if progress is not None and (is_told or time.monotonic() >= due_s):
                self._newest = None
                due_s = time.monotonic() + self._interval_s
                self._send(progress)
            elif not self._closed:
                self._ask(None)

    def _send(self, progress: Progress) -> None:
        # JSON has no NaN: a metric that is no number, as when a training has diverged, is sent as null.
        metrics = {name: value if isfinite(value) else None for name, value in progress.metrics.items()}
        self._ask(json.dumps({**asdict(progress), "metrics": metrics}).encode())

    def _ask(self, report: bytes | None) -> None:
        """Sends a report, or none, and hears the answer."""
        request = urllib.request.Request(
            self._url,
            data=report,
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trusted()) as response:
                answer = json.load(response)
        except (OSError, ValueError) as error:
            if report is None and isinstance(error, urllib.error.HTTPError) and error.code in NO_SUCH_QUESTION:
                self._listen_s = self._interval_s
                return
            if not self._silent:
                log.warning("progress is not reported to %s: %s; training goes on", self._url, error)
            self._silent = True
            return
        self._silent = False
        self._hear(answer)

    def _hear(self, answer: Mapping[str, Any]) -> None:
        """Passes on that the scheduler wants a checkpoint, or will stop the job; once for each time it says so."""
        heard = (answer.get("checkpoint_until_ms"), answer.get("stop_at_ms"))
        if heard == self._heard:
            return
        self._heard = heard
        checkpoint_until_ms, stop_at_ms = heard
        if stop_at_ms is not None:
            self._on_checkpoint(stop_at_ms / 1e3, True)
        elif checkpoint_until_ms is not None:
            self._on_checkpoint(checkpoint_until_ms / 1e3, False)
