"""What was last told of each node, kept for the next server: it tells what has changed since, and nothing else."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from phalanx.backends.local.folder import read_paper, write_durably
from phalanx.cluster.cluster import Health


class Told:
    """Health, and what other work of Ray holds, by node. A node that nothing was told of is healthy and free."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._nodes: dict[str, Any] = read_paper(self._path) or {}

    def is_new_health(self, node: str, health: Health) -> bool:
        """Whether that was not told yet; it is from now on."""
        return self._note(node, "health", health.value, Health.HEALTHY.value)

    def is_new_use(self, node: str, used: list[int]) -> bool:
        """Whether that was not told yet; it is from now on."""
        return self._note(node, "used", used, [0, 0])

    def _note(self, node: str, what: str, value: object, before: object) -> bool:
        known = self._nodes.setdefault(node, {})
        if known.get(what, before) == value:
            return False
        known[what] = value
        with suppress(OSError):
            write_durably(self._path, self._nodes)
        return True
