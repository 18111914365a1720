"""Looking up what has changed on nodes since a record, device by device, and which jobs have them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, select

from phalanx.server.store import settings
from phalanx.server.store.journal import newest_seq
from phalanx.server.store.tables import jobs, nodes
from phalanx.server.view.cluster import LAYOUT
from phalanx.server.view.devices import Device, devices_of

CHUNK = 500
"""Jobs that are looked up at once: SQLite takes a bounded number of values in one statement."""


class NodeDevices(NamedTuple):
    """A node as it was after a record: its health, and its devices by their numbers."""

    name: str
    position: int
    health: str
    devices: list[Device]


class Holder(NamedTuple):
    """What is known of a job that has devices."""

    number: int
    name: str
    queue: str
    user: str
    running_since_ms: int | None


class Place(NamedTuple):
    """A node as its owner described it."""

    name: str
    path: list[str]
    model: str
    devices: int
    memory_gb: float


class Changes(NamedTuple):
    """What is new. With another `layout` all nodes there are come with their `places`. All is true up to the record
    `seq`; a reader that follows goes on after `followed`.
    """

    layout: int
    seq: int
    followed: int
    nodes: list[NodeDevices]
    holders: dict[str, Holder]
    places: list[Place]


def changes_since(connection: Connection, layout: int, seq: int) -> Changes:
    """What has changed since a record; all of it if the nodes differ from those of that layout."""
    # First the layout: nodes that are written anew meanwhile are found to differ the next time.
    present = int(settings.get(connection, LAYOUT) or b"-1")
    is_other = present != layout
    newest = newest_seq(connection)
    newer = -2 if is_other else seq
    columns = (nodes.c.name, nodes.c.position, nodes.c.health, nodes.c.devices, nodes.c.seq)
    rows = connection.execute(select(*columns).where(nodes.c.seq > newer).order_by(nodes.c.position)).all()
    found = [NodeDevices(row.name, row.position, row.health, devices_of(row.devices)) for row in rows]
    holders = holders_of(connection, (job for node in found for device in node.devices for job in device.jobs))
    places = _places(connection) if is_other else []
    return Changes(present, newest, max((row.seq for row in rows), default=seq), found, holders, places)


def holders_of(connection: Connection, ids: Iterable[str]) -> dict[str, Holder]:
    """What is known of some jobs."""
    wanted = iter(dict.fromkeys(ids))
    found: dict[str, Holder] = {}
    columns = (jobs.c.id, jobs.c.number, jobs.c.name, jobs.c.queue, jobs.c.user, jobs.c.running_since_ms)
    while chunk := list(islice(wanted, CHUNK)):
        for job, *known in connection.execute(select(*columns).where(jobs.c.id.in_(chunk))):
            found[job] = Holder(*known)
    return found


def _places(connection: Connection) -> list[Place]:
    rows = connection.execute(select(nodes.c.name, nodes.c.facts).order_by(nodes.c.position))
    return [_place(row.name, msgspec.json.decode(row.facts)) for row in rows]


def _place(name: str, facts: dict[str, Any]) -> Place:
    return Place(
        name,
        list(facts.get("path", ())),
        facts.get("gpu_type", ""),
        facts.get("gpus", 0),
        facts.get("gpu_memory_gb", 0.0),
    )
