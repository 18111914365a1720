"""Looking nodes up in the view."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, func, select

from phalanx.server.store.tables import jobs, nodes
from phalanx.server.view.devices import devices_of, out_of_service
from phalanx.server.view.lists import node_item


def page(connection: Connection, after: int | None, limit: int, health: str = "") -> list[dict[str, Any]]:
    """One page of nodes, in the order of the cluster file."""
    query = select(nodes).where(nodes.c.position > (-1 if after is None else after))
    if health:
        query = query.where(nodes.c.health == health)
    return [_item(row) for row in connection.execute(query.order_by(nodes.c.position).limit(limit))]


def names(connection: Connection) -> list[str]:
    """The nodes by name, in the order of the cluster file."""
    return list(connection.execute(select(nodes.c.name).order_by(nodes.c.position)).scalars())


def one(connection: Connection, name: str) -> dict[str, Any] | None:
    """A node by its name."""
    found = connection.execute(select(nodes).where(nodes.c.name == name)).one_or_none()
    return _item(found) if found is not None else None


def count_without(connection: Connection, names: Collection[str]) -> int:
    """How many nodes there are beside those of some names."""
    return int(connection.execute(select(func.count()).where(nodes.c.name.not_in(names))).scalar() or 0)


def gpus_used(connection: Connection) -> int:
    """GPUs that attempts hold, on all nodes."""
    return int(connection.execute(select(func.sum(nodes.c.gpus_used))).scalar() or 0)


def health_totals(connection: Connection) -> dict[str, int]:
    """How many nodes there are of each health."""
    found = connection.execute(select(nodes.c.health, func.count()).group_by(nodes.c.health))
    return {row[0]: row[1] for row in found}


def queues_of(connection: Connection, ids: list[str]) -> dict[str, str]:
    """The queues of some jobs."""
    found = connection.execute(select(jobs.c.id, jobs.c.queue).where(jobs.c.id.in_(ids)))
    return {row.id: row.queue for row in found}


def _item(row: Row[Any]) -> dict[str, Any]:
    return {
        "name": row.name,
        "position": row.position,
        "health": row.health,
        "reason": row.reason,
        "gpus_used": row.gpus_used,
        "gpus_out": out_of_service(devices_of(row.devices)),
        "jobs": msgspec.json.decode(row.jobs),
        **node_item(msgspec.json.decode(row.facts)),
    }
