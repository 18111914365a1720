"""Virtual clusters in the store, as the view has written them last."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection

from phalanx.server.store import settings

KEY = "virtual_clusters"


def virtual_clusters_of(connection: Connection) -> dict[str, dict[str, Any]]:
    """The virtual clusters by name; none where the cluster has no cells."""
    found: dict[str, dict[str, Any]] = msgspec.json.decode(settings.get(connection, KEY) or b"{}")
    return found


def put_virtual_clusters(connection: Connection, told: dict[str, dict[str, Any]]) -> None:
    """Writes what is told of them from now on."""
    settings.put(connection, KEY, msgspec.json.encode(told))
