"""Tells the scheduler what a leader has found, where a job of its reports its progress."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict

from phalanx.train.launch.cause import Cause
from phalanx.train.launch.epoch import Epoch
from phalanx.train.launch.stragglers import Verdict
from phalanx.train.launch.told.findings import TEXT_MOST, Finding, Findings

AT_ONCE_MOST = 8
WAITING_MOST = 64
"""The newest are told once a server that was away is back."""

AGAIN_S = 5.0
TOLD_WITHIN_S = 10.0
"""How long a launcher that ends waits for a server that is slow or away. One that is there hears it at once."""

log = logging.getLogger("phalanx.launch")


class FindingReporter:
    """Sends findings from a thread of its own, in their order; a server that is away is tried again."""

    def __init__(self) -> None:
        self._url, self._token = (
            os.environ.get("PHALANX_PROGRESS_URL", ""),
            os.environ.get("PHALANX_PROGRESS_TOKEN", ""),
        )
        self._findings = Findings()
        self._waiting: deque[Finding] = deque(maxlen=WAITING_MOST)
        self._wake, self._idle = threading.Event(), threading.Event()
        self._idle.set()
        self._closed = False
        self._thread: threading.Thread | None = None

    def tell_slow(self, epoch: Epoch, verdict: Verdict) -> None:
        """A rank has begun to be slow, or ceased."""
        self.tell(self._findings.slow(epoch, verdict))

    def tell_failed(self, epoch: Epoch, causes: Sequence[Cause]) -> None:
        """The first causes of failures of an epoch."""
        for cause in causes:
            self.tell(self._findings.failed(epoch, cause))

    def tell(self, findings: Sequence[Finding]) -> None:
        """Has findings sent; outside of a job nobody is told."""
        if not findings or not self._url or self._closed:
            return
        self._waiting.extend(findings)
        self._idle.clear()
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="findings")
            self._thread.start()

    def close(self) -> None:
        """Waits a moment until all is sent: a launcher that ends is followed by its attempt."""
        self._idle.wait(TOLD_WITHIN_S)
        self._closed = True
        self._wake.set()

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait()
            self._wake.clear()
            while self._waiting and not self._closed:
                some = [self._waiting[number] for number in range(min(AT_ONCE_MOST, len(self._waiting)))]
                if not self._send(some):
                    time.sleep(AGAIN_S)
                    continue
                for _ in some:
                    self._waiting.popleft()
            self._idle.set()

    def _send(self, findings: Sequence[Finding]) -> bool:
        """Whether they need not be sent again: a server that refuses them would do so again."""
        # Most launchers never have anything to tell, and what speaks to servers takes long to import.
        import urllib.error
        import urllib.request

        from phalanx.train.checkpoint.ending.progress import TIMEOUT_S, trusted

        said = {"findings": [{**asdict(each), "text": each.text[:TEXT_MOST]} for each in findings]}
        request = urllib.request.Request(
            self._url,
            data=json.dumps(said).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trusted()) as response:
                response.read()
        except urllib.error.HTTPError as error:
            with error:
                log.warning("the scheduler does not take what was found: %s %s", error, error.read(300).decode())
            return error.code < 500 and error.code != 429
        except OSError as error:
            log.warning("what was found is not told to %s yet: %s", self._url, error)
            return False
        return True
