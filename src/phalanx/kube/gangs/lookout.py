"""The lookout: asks the API server again and again what it has that says which pods start together, where, and when.

Custom resources are defined and deleted while a scheduler runs: a site that installs Volcano later, or removes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError
from phalanx.kube.gangs.discovery import Kinds, served_now

LOOK_S = 20.0
"""How often it looks: what is defined is seen within this, what is deleted within twice this."""


@dataclass(frozen=True, slots=True)
class Served:
    """What the server has by now."""

    kinds: Kinds


class Lookout:
    """Tells `tell` what the server has, from a thread of its own, until it is closed."""

    def __init__(self, client: Client, tell: Callable[[Served], None]) -> None:
        self._client = client
        self._tell = tell
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lookout", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def close(self) -> None:
        """Ends it, after a look that it takes just now."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        before: Kinds = {}
        while not self._closed.wait(LOOK_S):
            try:
                now = served_now(self._client)
            except ApiError:
                # A server that is away, or defines something just now, says nothing of what it has.
                continue
            # One that was just restarted may know no custom resources for a moment: two looks must miss a kind.
            self._tell(Served({**before, **now}))
            before = now
