"""The difference between the cluster there is and one there is to be, as lines for people and as what it would stop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.queues import Quota
from phalanx.engine.check import check
from phalanx.engine.event import ClusterChanged, Event, PolicyChanged
from phalanx.engine.reconfigure import stopped_by
from phalanx.engine.state import State

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SHOWN_MAX = 50


def changes_of(state: State, cluster: Cluster) -> list[Event]:
    """The events that lead from what a State has to a cluster; none if it has it. What cannot be raises ValueError."""
    events: list[Event] = []
    present = state.cluster_to_be or state.cluster
    if cluster != present:
        events.append(ClusterChanged(cluster))
    if cluster.policy != state.policy.spec:
        events.append(PolicyChanged(cluster.policy))
    for event in events:
        check(state, event)
    return events


def difference(state: State, cluster: Cluster) -> dict[str, Any]:
    """What would change, and which attempts that would stop."""
    changes_of(state, cluster)
    present = state.cluster_to_be or state.cluster
    lines = [
        *_nodes(present, cluster),
        *_queues(present, cluster),
        *_windows(present, cluster),
        *_virtual_clusters(present, cluster),
        *_rest(present, cluster),
    ]
    if cluster.policy != state.policy.spec:
        lines.append(f"policy: {state.policy.spec} becomes {cluster.policy}")
    return {"changes": lines, "stops": list(stopped_by(state, cluster)) if cluster != present else []}


def _nodes(old: Cluster, new: Cluster) -> Iterator[str]:
    had = {node.name: node for node in old.nodes}
    has = {node.name: node for node in new.nodes}
    yield from _listed("nodes come", [name for name in has if name not in had])
    yield from _listed("nodes go", [name for name in had if name not in has])
    for name in [name for name in has if name in had and has[name] != had[name]][:SHOWN_MAX]:
        yield f"node {name}: {_changed(had[name], has[name])}"


def _queues(old: Cluster, new: Cluster) -> Iterator[str]:
    had = {queue.path: queue for queue in old.queues}
    has = {queue.path: queue for queue in new.queues}
    yield from _listed("queues come", [path for path in has if path not in had])
    yield from _listed("queues go", [path for path in had if path not in has])
    for path in [path for path in has if path in had and has[path] != had[path]][:SHOWN_MAX]:
        yield f"queue {path}: {_changed(had[path], has[path])}"


def _windows(old: Cluster, new: Cluster) -> Iterator[str]:
    had = {window.name: window for window in old.maintenance}
    has = {window.name: window for window in new.maintenance}
    yield from _listed("times of maintenance come", [name for name in has if name not in had])
    yield from _listed("times of maintenance go", [name for name in had if name not in has])
    yield from _listed("times of maintenance change", [name for name in has if name in had and has[name] != had[name]])


def _virtual_clusters(old: Cluster, new: Cluster) -> Iterator[str]:
    had, has = _owned(old), _owned(new)
    yield from _listed("virtual clusters come", [name for name in has if name not in had])
    yield from _listed("virtual clusters go", [name for name in had if name not in has])
    for name in [name for name in has if name in had and has[name] != had[name]][:SHOWN_MAX]:
        yield f"virtual cluster {name}: {had[name]} becomes {has[name]}"


def _owned(cluster: Cluster) -> dict[str, str]:
    """What each virtual cluster owns, in words."""
    if cluster.cells is None:
        return {}
    return {
        spec.name: " and ".join(
            [
                *(f"{each.count} {each.type}" for each in spec.cells),
                *(f"pinned cell {each}" for each in spec.pinned_ids),
            ]
        )
        or "nothing"
        for spec in cluster.cells.virtual_clusters
    }


def _rest(old: Cluster, new: Cluster) -> Iterator[str]:
    told = {"nodes", "queues", "maintenance", "policy"}
    for each in fields(new):
        if each.name not in told and getattr(old, each.name) != getattr(new, each.name):
            yield "the hierarchy of cells changes" if each.name == "cells" else f"{each.name} changes"


def _changed(old: DataclassInstance, new: DataclassInstance) -> str:
    """What of a thing becomes what."""
    pairs = [(each.name, getattr(old, each.name), getattr(new, each.name)) for each in fields(new)]
    return "; ".join(f"{name} {_value(was)} becomes {_value(will)}" for name, was, will in pairs if was != will)


def _value(value: object) -> str:
    """A value as the file of a cluster would have it."""
    match value:
        case Quota():
            return (
                ", ".join(f"{each} {amount}" for each, amount in value._asdict().items() if amount is not None)
                or "none"
            )
        case tuple():
            return "/".join(map(_value, value)) or "none"
        case "" | None:
            return "none"
        case _:
            return str(value)


def _listed(what: str, names: list[str]) -> Iterator[str]:
    if names:
        more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
        yield f"{len(names)} {what}: {', '.join(names[:SHOWN_MAX])}{more}"
