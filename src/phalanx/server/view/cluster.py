"""The cluster itself in the view: its nodes as they are described, and what all users may know of it."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, delete, select

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.formats.queue_data import queue_data
from phalanx.engine.state.state import State
from phalanx.server.store import settings
from phalanx.server.store.bulk import Bulk
from phalanx.server.store.tables import nodes
from phalanx.server.view.lists import quotas_in
from phalanx.server.view.rows import Row, node_row, text_of
from phalanx.server.view.windows import note_gone

NEW_NODES = Bulk(nodes)
LAYOUT = "layout"
"""The setting that tells after which record all nodes were last written: they may differ from before."""


def write_cluster(connection: Connection, state: State, placement: str) -> None:
    """Writes what the view tells of the cluster itself."""
    reasons = {row.name: row.reason for row in connection.execute(select(nodes.c.name, nodes.c.reason))}
    connection.execute(delete(nodes))
    rows = [
        {
            **node_row(state, node.name),
            "position": number,
            "facts": text_of(node),
            "reason": reasons.get(node.name, ""),
        }
        for number, node in enumerate(state.topology.nodes)
    ]
    NEW_NODES.run(connection, rows)
    settings.put(connection, LAYOUT, str(state.seq).encode())
    about = about_cluster(state, placement)
    note_gone(connection, state.now, about["maintenance"])
    settings.put(connection, "cluster", msgspec.json.encode(about))


def placement_of(connection: Connection) -> str:
    """The way places are chosen, as it was last written."""
    return str(msgspec.json.decode(settings.get(connection, "cluster") or b"{}").get("placement", ""))


def about_cluster(state: State, placement: str) -> Row:
    """What all users may know of the cluster as a whole."""
    cluster: Cluster = state.cluster
    return {
        "name": cluster.name,
        "levels": list(cluster.levels),
        "nodes": len(cluster.nodes),
        "gpus": cluster.gpus,
        "gpu_types": list(dict.fromkeys(node.gpu_type for node in cluster.nodes if node.gpu_type)),
        "storage_tiers": list(cluster.storage_tiers),
        "policy": state.policy.spec,
        "placement": placement,
        "term": state.term,
        "queues": quotas_in(state),
        "queue_file": queue_data(cluster.queues),
        "maintenance": [msgspec.to_builtins(window) for window in cluster.maintenance],
    }
