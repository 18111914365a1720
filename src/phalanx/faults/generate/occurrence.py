"""Occurrences: one thing that goes wrong at a moment on some nodes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class What(StrEnum):
    """What an occurrence does to the jobs on its nodes."""

    NODE = "node"
    """The nodes fail: their jobs stand still, which is noticed after a while, and they come back repaired."""
    PROCESS = "process"
    """A process fails: the jobs on the node end, and the node is as well as before."""
    SILENT = "silent"
    """Results are wrong from now on: noticed late, and all since is worth nothing. Then the nodes are repaired."""
    PARTITION = "partition"
    """The nodes are cut off from others: jobs that lie on both sides end, and no new work is placed there."""
    SLOW = "slow"
    """The nodes run at a part of their speed until they are repaired."""
    MAINTENANCE = "maintenance"
    """The nodes take no new work after the notice, and are then out of service."""
    RECLAIM = "reclaim"
    """The owner of spot nodes takes them back after a notice in which jobs save their work if they can."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One occurrence. After `detect_ms` it is noticed, after `repair_ms` more the nodes are back in service.

    With a notice it is announced so long before. `factor` is the speed that is left to nodes that are slow.
    """

    at_ms: int
    what: What
    nodes: tuple[str, ...]
    cause: str = ""
    detect_ms: int = 0
    repair_ms: int = 0
    notice_ms: int = 0
    factor: float = 1.0
