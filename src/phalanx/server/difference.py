"""The difference between the cluster there is and one there is to be, as lines for people and as what it would stop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from phalanx.cluster.cluster import Cluster
from phalanx.engine.apply import check
from phalanx.engine.event import ClusterChanged, Event, PolicyChanged
from phalanx.engine.reconfigure import stopped_by
from phalanx.engine.state import State

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
        parts = [
            f"{each.name} {getattr(had[name], each.name)} becomes {getattr(has[name], each.name)}"
            for each in fields(has[name])
            if getattr(had[name], each.name) != getattr(has[name], each.name)
        ]
        yield f"node {name}: {'; '.join(parts)}"


def _queues(old: Cluster, new: Cluster) -> Iterator[str]:
    had = {queue.path: queue for queue in old.queues}
    has = {queue.path: queue for queue in new.queues}
    yield from _listed("queues come", [path for path in has if path not in had])
    yield from _listed("queues go", [path for path in had if path not in has])
    yield from _listed("queues change", [path for path in has if path in had and has[path] != had[path]])


def _windows(old: Cluster, new: Cluster) -> Iterator[str]:
    had = {window.name: window for window in old.maintenance}
    has = {window.name: window for window in new.maintenance}
    yield from _listed("times of maintenance come", [name for name in has if name not in had])
    yield from _listed("times of maintenance go", [name for name in had if name not in has])
    yield from _listed("times of maintenance change", [name for name in has if name in had and has[name] != had[name]])


def _rest(old: Cluster, new: Cluster) -> Iterator[str]:
    for each in fields(new):
        if each.name not in ("nodes", "queues", "maintenance", "policy") and getattr(old, each.name) != getattr(
            new, each.name
        ):
            yield f"{each.name} changes"


def _listed(what: str, names: list[str]) -> Iterator[str]:
    if names:
        more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
        yield f"{len(names)} {what}: {', '.join(names[:SHOWN_MAX])}{more}"
