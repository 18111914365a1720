"""Sizes as changes of a RayCluster of KubeRay: `replicas` of worker groups, and which workers are to go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from phalanx.backends.ray.scaling.sizes import Size
from phalanx.errors import PhalanxError


class NoGroup(PhalanxError):  # noqa: N818
    """A group that the RayCluster does not have."""


def patch_of(cluster: Mapping[str, Any], sizes: Iterable[Size]) -> list[dict[str, Any]]:
    """A JSON patch that brings a RayCluster to these sizes; nothing where it has them.

    Each change is tested against what was read: where another has changed the group meanwhile, none is made.
    """
    name, groups = cluster["metadata"]["name"], cluster["spec"].get("workerGroupSpecs", [])
    if cluster["spec"].get("enableInTreeAutoscaling"):
        raise NoGroup(f"RayCluster {name}: Ray's own autoscaler sizes it; set enableInTreeAutoscaling: false")
    numbers = {group["groupName"]: number for number, group in enumerate(groups)}
    changes: list[dict[str, Any]] = []
    for size in sizes:
        if size.group not in numbers:
            known = ", ".join(numbers) or "none"
            raise NoGroup(f"RayCluster {name}: there is no worker group {size.group!r}; expected one of {known}")
        number = numbers[size.group]
        changes += _changes(f"/spec/workerGroupSpecs/{number}", groups[number], size)
    return changes


def _changes(path: str, group: Mapping[str, Any], size: Size) -> list[dict[str, Any]]:
    if group.get("replicas", 0) == size.nodes and not size.leave:
        return []
    least, most = group.get("minReplicas", 0), group.get("maxReplicas", 2**31 - 1)
    if not least <= size.nodes <= most:
        raise NoGroup(f"worker group {size.group!r}: {size.nodes} replicas are not within its {least} to {most}")
    changes: list[dict[str, Any]] = [
        {"op": "test", "path": f"{path}/groupName", "value": size.group},
        {"op": "add", "path": f"{path}/replicas", "value": size.nodes},
    ]
    if size.leave:
        strategy = {"workersToDelete": list(size.leave)}
        changes.append({"op": "add", "path": f"{path}/scaleStrategy", "value": strategy})
    return changes
