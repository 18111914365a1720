"""Virtual clusters in the view: which cells each owns, what of them its jobs have, and what it has beyond them."""

from __future__ import annotations

from phalanx.engine.state.state import State
from phalanx.placement.cells.group import Group
from phalanx.placement.cells.trees.cell import VirtualCell
from phalanx.server.view.rows import Row


def about_virtual_clusters(state: State) -> dict[str, Row]:
    """What all users may know of every virtual cluster, by name."""
    if state.cells is None:
        return {}
    estate = state.cells.cells.estate
    told = {}
    for name, cluster in estate.clusters.items():
        groups = [group for group in estate.groups.values() if group.request.virtual_cluster == name]
        owned = [group for group in groups if group.is_guaranteed]
        in_use = {leaf.root.address: None for group in owned for leaf in _virtual_leaves(group)}
        cells: dict[str, Row] = {}
        for root in cluster.roots():
            kind = root.chain.types[root.level]
            row = cells.setdefault(kind, {"type": kind, "gpus": root.leaf_count, "count": 0, "free": 0})
            row["count"] += 1
            row["free"] += root.address not in in_use
        gpus = sum(row["gpus"] * row["count"] for row in cells.values())
        used = sum(map(_gpus, owned))
        told[name] = {
            "cells": list(cells.values()),
            "gpus": gpus,
            "gpus_used": used,
            "gpus_free": gpus - used,
            "gpus_opportunistic": sum(map(_gpus, groups)) - used,
        }
    return told


def _virtual_leaves(group: Group) -> list[VirtualCell]:
    return [leaf for seat in group.seats for leaf in seat.virtual or () if leaf is not None]


def _gpus(group: Group) -> int:
    return sum(len(seat.indices) for seat in group.seats)
