"""Maintenance: times in which nodes are out of service, known beforehand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Maintenance:
    """From `start_ms` until `end_ms` no job runs on these nodes, and none is placed there that would run into it."""

    name: str
    nodes: tuple[str, ...]
    start_ms: int
    end_ms: int

    def check(self, known: dict[str, None]) -> None:
        """Raises ValueError if it names nodes that there are not, or ends before it begins."""
        for node in self.nodes:
            if node not in known:
                raise ValueError(f"maintenance {self.name}: there is no node {node!r}")
        if not 0 <= self.start_ms < self.end_ms:
            raise ValueError(f"maintenance {self.name}: it ends at {self.end_ms} ms, but begins at {self.start_ms} ms")
