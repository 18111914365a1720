"""Pods and sites for tests of cells, in few words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from phalanx.compat.hived import HivedScheduler, Result

DESIGN = Path(__file__).parent / "data" / "cells" / "design.yaml"


def design() -> dict[str, Any]:
    """The site with every feature, to be changed at will."""
    config: dict[str, Any] = yaml.safe_load(DESIGN.read_text())
    return config


def pod(
    name: str,
    cluster: str,
    priority: int,
    leaves: int,
    members: list[tuple[int, int]] | None = None,
    *,
    group: str = "",
    leaf_type: str = "",
    pinned: str = "",
    lazy: bool = False,
    nodes: list[str] | None = None,
) -> dict[str, Any]:
    """A pod; `members` are pairs of pods and leaves, and `nodes` the suggested ones, which it then minds."""
    spec: dict[str, Any] = {
        "name": name,
        "virtualCluster": cluster,
        "priority": priority,
        "leafCellType": leaf_type,
        "leafCellNumber": leaves,
        "pinnedCellId": pinned,
        "lazyPreemptionEnable": lazy,
        "ignoreK8sSuggestedNodes": nodes is None,
        "affinityGroup": {
            "name": group or name,
            "members": [{"podNumber": pods, "leafCellNumber": size} for pods, size in members or [(1, leaves)]],
        },
    }
    return spec if nodes is None else spec | {"suggested_nodes": nodes}


def placed(result: Result) -> tuple[str | None, list[int]]:
    """Where a pod was bound."""
    assert result.kind == "bind", result
    return result.node, list(result.gpus)


def pool(nodes: int, gpus: int, **clusters: int) -> dict[str, Any]:
    """One pool of equal nodes n0, n1, …, of which virtual clusters own so many."""
    return {
        "physicalCluster": {
            "cellTypes": {
                "NODE": {"childCellType": "GPU", "childCellNumber": gpus, "isNodeLevel": True},
                "POOL": {"childCellType": "NODE", "childCellNumber": nodes},
            },
            "physicalCells": [{"cellType": "POOL", "cellChildren": [{"cellAddress": f"n{i}"} for i in range(nodes)]}],
        },
        "virtualClusters": {
            name: {"virtualCells": [{"cellType": "POOL.NODE", "cellNumber": count}]} for name, count in clusters.items()
        },
    }


def checked(scheduler: HivedScheduler, spec: dict[str, Any]) -> Result:
    """Schedules a pod and checks every invariant."""
    result = scheduler.schedule(spec)
    scheduler.cells.check()
    return result
