"""The difference between the cluster there is and one there is to be, as lines for people and as what it would stop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.queues import Quota, loose_limits, with_unit
from phalanx.cluster.recovery import Recovery
from phalanx.engine.fold.check import check
from phalanx.engine.fold.reconfigure import stopped_by
from phalanx.engine.state.state import State
from phalanx.engine.why.evidence import stranded_by
from phalanx.policy.registry import is_file, known, split
from phalanx.protocol.event import ClusterChanged, Event, PolicyChanged
from phalanx.server.cluster.quota_warnings import quota_warnings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SHOWN_MAX = 50


def present_cluster(state: State) -> Cluster:
    """The cluster that a State has or is about to have, with the policy that decides."""
    return replace(state.cluster_to_be or state.cluster, policy=state.policy.spec)


def need_known(policy: str) -> None:
    """Raises ValueError for a policy in a user's own file, which no process of a server has loaded."""
    if is_file(policy) and split(policy)[0] not in known():
        raise ValueError(f"policy {policy!r}: a server decides by policies that it knows by name, not by one in a file")


def changes_of(state: State, cluster: Cluster) -> list[Event]:
    """The events that lead from what a State has to a cluster; none if it has it. What cannot be raises ValueError."""
    need_known(cluster.policy)
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
    """What would change, which attempts that would stop, which pending jobs could never start, and warnings."""
    changes_of(state, cluster)
    present = state.cluster_to_be or state.cluster
    resized = (cluster.queues, cluster.nodes) != (present.queues, present.nodes)
    lines = [
        *_nodes(present, cluster),
        *_queues(present, cluster),
        *_over_limits(state, cluster),
        *_windows(present, cluster, state.now),
        *_virtual_clusters(present, cluster),
        *_rest(present, cluster),
    ]
    if cluster.policy != state.policy.spec:
        lines.append(f"policy: {state.policy.spec} becomes {cluster.policy}")
    return {
        "changes": lines,
        "stops": list(stopped_by(state, cluster)) if cluster != present else [],
        "strands": list(stranded_by(state, cluster)) if cluster.queues != present.queues else [],
        "warnings": list(islice(quota_warnings(cluster), SHOWN_MAX)) if resized else [],
    }


def _nodes(old: Cluster, new: Cluster) -> Iterator[str]:
    had = {node.name: node for node in old.nodes}
    has = {node.name: node for node in new.nodes}
    yield from _listed("Nodes added", [name for name in has if name not in had])
    yield from _listed("Nodes removed", [name for name in had if name not in has])
    for name in [name for name in has if name in had and has[name] != had[name]][:SHOWN_MAX]:
        yield f"node {name}: {_changed(had[name], has[name])}"


def _queues(old: Cluster, new: Cluster) -> Iterator[str]:
    had = {queue.path: queue for queue in old.queues}
    has = {queue.path: queue for queue in new.queues}
    yield from _listed("Queues added", [path for path in has if path not in had])
    yield from _listed("Queues removed", [path for path in had if path not in has])
    for path in [path for path in has if path in had and has[path] != had[path]][:SHOWN_MAX]:
        yield f"queue {path}: {_changed(had[path], has[path])}"
    if old.queues != new.queues:
        yield from islice(loose_limits(new.queues), SHOWN_MAX)


def _over_limits(state: State, cluster: Cluster) -> Iterator[str]:
    """Queues that have more than limits that they do not have yet."""
    had = {queue.path: queue.limit for queue in (state.cluster_to_be or state.cluster).queues}
    for queue in cluster.queues:
        if queue.limit == had.get(queue.path):
            continue
        for resource, (has, limit) in enumerate(zip(state.usage(queue.path), queue.limit, strict=True)):
            if limit is not None and has > limit:
                more = f"{with_unit(has, resource)}, more than the limit of {with_unit(limit, resource)}"
                yield f"queue {queue.path} has {more}: no job is stopped for that, and none starts until it has less"


def _windows(old: Cluster, new: Cluster, now_ms: int) -> Iterator[str]:
    had = {window.name: window for window in old.maintenance}
    has = {window.name: window for window in new.maintenance}
    changed = [name for name in has if name in had and has[name] != had[name]]
    yield from _listed("Maintenance added", [name for name in has if name not in had])
    yield from _listed("Maintenance removed", [name for name in had if name not in has])
    yield from _listed("Maintenance changed", changed)
    over = [name for name in has if has[name] != had.get(name) and has[name].end_ms <= now_ms]
    yield from _listed("Maintenance already over", over)


def _virtual_clusters(old: Cluster, new: Cluster) -> Iterator[str]:
    had, has = _owned(old), _owned(new)
    yield from _listed("Virtual clusters added", [name for name in has if name not in had])
    yield from _listed("Virtual clusters removed", [name for name in had if name not in has])
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


TOLD = ("nodes", "queues", "maintenance", "policy")
"""What of a cluster is told of by lines of its own."""

IN_ALL = {
    "links": "the bandwidth of links",
    "overcommit": "what is overcommitted",
    "storage": "what tiers of storage there are",
    "cells": "the hierarchy of cells",
}
"""What is too much to be told of in a line, in words."""


def _rest(old: Cluster, new: Cluster) -> Iterator[str]:
    for each in fields(new):
        name, was, will = each.name, getattr(old, each.name), getattr(new, each.name)
        if name not in TOLD and was != will:
            into = f": {_value(name, was)} becomes {_value(name, will)}"
            yield f"{IN_ALL[name]} changes" if name in IN_ALL else f"{_key(name)}{into}"


def _changed(old: DataclassInstance, new: DataclassInstance) -> str:
    """What of a thing becomes what."""
    pairs = [(each.name, getattr(old, each.name), getattr(new, each.name)) for each in fields(new)]
    return "; ".join(
        f"{_key(name)} {_value(name, was)} becomes {_value(name, will)}" for name, was, will in pairs if was != will
    )


WRITTEN = {
    "gpus_permille": ("gpus", 1000),
    "cpus_milli": ("cpus", 1000),
    "memory_mb": ("memory_gb", 1024),
    "min_run_ms": ("min_run", 1000),
    "min_run_reclaim_ms": ("min_run_reclaim", 1000),
    "budget_gpu_ms": ("budget_gpu_hours", 3_600_000),
    "defragment_ms": ("defragment", 1000),
    "patience_ms": ("patience", 1000),
}
"""What is counted in small units: its key in the file of a cluster, and how many make one of what is written there."""


IN_SECONDS = ("min_run_ms", "min_run_reclaim_ms", "defragment_ms", "patience_ms")


RENAMED = {
    "normal_priority": "job_priority.normal",
    "member_priority_max": "job_priority.members",
    "operator_priority_max": "job_priority.operators",
}
"""What has another name in the file of a cluster."""


def _key(name: str) -> str:
    return WRITTEN[name][0] if name in WRITTEN else RENAMED.get(name, name)


def _value(name: str, value: object) -> str:
    """A value as the file of a cluster would have it."""
    match value:
        case Recovery():
            return f"{value.spares} spares per {value.per}"
        case Quota():
            said = {each: amount for each, amount in value._asdict().items() if amount is not None}
            return ", ".join(f"{_key(each)} {_value(each, amount)}" for each, amount in said.items()) or "none"
        case tuple():
            return "/".join(_value(name, each) for each in value) or "none"
        case "" | None:
            return "none"
        case 0 if name in ("defragment_ms", "patience_ms"):
            return "never"
        case int() if name in WRITTEN:
            return f"{value / WRITTEN[name][1]:g}" + ("s" if name in IN_SECONDS else "")
        case _:
            return str(value)


def _listed(what: str, names: list[str]) -> Iterator[str]:
    if names:
        more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
        yield f"{what}: {', '.join(names[:SHOWN_MAX])}{more}"
