"""Which nodes are simulated, by the names of those that are machines, which the backend knows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
from sqlalchemy import Connection

from phalanx.server.store import settings

FILE, GPUS_FILE = "simulated", "gpus"
"""Where the loop leaves their number, and that of all GPUs, for `up`, in the folder of what runs."""


def real_nodes_of(connection: Connection) -> list[str] | None:
    """The nodes that are machines, as the backend told when it was opened; None means all."""
    offer = msgspec.json.decode(settings.get(connection, "backend") or b"{}")
    found: list[str] | None = offer.get("real_nodes")
    return found


def write_simulated(folder: Path, nodes: Iterable[str], real: Collection[str] | None) -> None:
    """Leaves for `up` how many of all nodes are simulated."""
    count = 0 if real is None else sum(name not in real for name in nodes)
    (folder / FILE).write_text(str(count))


def write_gpus(folder: Path, count: int) -> None:
    """Leaves for `up` how many GPUs all nodes have."""
    (folder / GPUS_FILE).write_text(str(count))


def gpus_left(folder: Path) -> int | None:
    """The number of GPUs that the loop has left; None where it could not."""
    try:
        return int((folder / GPUS_FILE).read_text())
    except (OSError, ValueError):
        return None


def simulated_nodes(folder: Path) -> int:
    """The number that the loop has left; none where it could not."""
    try:
        return int((folder / FILE).read_text())
    except (OSError, ValueError):
        return 0
