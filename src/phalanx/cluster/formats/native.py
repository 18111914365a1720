"""The native cluster file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from phalanx.cluster.catalogue import UnknownAccelerator, accelerator
from phalanx.cluster.cell_cluster import cluster_of
from phalanx.cluster.cluster import CLUSTER, DEFAULT_POLICY, NODE, Cluster, Link, Overcommit, StorageTier
from phalanx.cluster.formats.domains import DOMAIN_KEYS, SERIES_KEYS, Declared, Domains, read_domains
from phalanx.cluster.formats.group import GROUP_KEYS, Group, Site, nodes_of, read_group
from phalanx.cluster.formats.hived import WRAPPER, read_hived
from phalanx.cluster.formats.limits import (
    CLUSTER_LIMITS,
    GB_S_MAX,
    GB_S_MIN,
    GPU_MEMORY_GB_MAX,
    GPU_TYPES_MAX,
    GPUS_MAX,
    LATENCY_US_MAX,
    LEVELS_MAX,
    NODES_MAX,
    OVERCOMMIT_MAX,
    STORAGE_GB_MAX,
    TIERS_MAX,
)
from phalanx.cluster.formats.maintenance import MAINTENANCE_KEYS, read_maintenance
from phalanx.cluster.formats.queues import JOB_PRIORITY_KEYS, QUEUE_KEYS, QUOTA_KEYS, read_patience, read_queues
from phalanx.cluster.formats.recovery import RECOVERY_KEYS, read_recovery
from phalanx.cluster.formats.taint import TAINT_KEYS
from phalanx.cluster.formats.virtual_clusters import OWNED_KEYS, VIRTUAL_CLUSTER_KEYS, read_virtual_clusters
from phalanx.document import Field, Fields, read_document
from phalanx.document.field import is_name, nearest

STANDARD_ABOVE = ("region", "pod", "rack")
STANDARD_LEVELS = (*STANDARD_ABOVE, NODE, "socket", "switch")

CLUSTER_KEYS = (
    "version",
    "name",
    "nodes",
    "levels",
    "domains",
    "gpu_types",
    "bandwidth",
    "storage",
    "overcommit",
    "policy",
    "queues",
    "maintenance",
    "defragment",
    "patience",
    "recovery",
    "virtual_clusters",
)
GPU_TYPE_KEYS = ("memory_gb",)
LINK_KEYS = ("gb_s", "latency_us")
TIER_KEYS = ("scope", "read_gb_s", "write_gb_s", "capacity_gb")
OVERCOMMIT_KEYS = ("cpus", "memory")
PERIOD_MIN_MS = 60_000
SIMULATION_BEGINS_MS = 0

KEYS = {
    "The file": CLUSTER_KEYS,
    "nodes": (*GROUP_KEYS, *STANDARD_ABOVE),
    "nodes.rack": SERIES_KEYS,
    "nodes.taints": TAINT_KEYS,
    "domains": DOMAIN_KEYS,
    "gpu_types": GPU_TYPE_KEYS,
    "bandwidth": LINK_KEYS,
    "storage": TIER_KEYS,
    "overcommit": OVERCOMMIT_KEYS,
    "queues": QUEUE_KEYS,
    "queues.job_priority": JOB_PRIORITY_KEYS,
    "queues.guaranteed, deserved, limit": QUOTA_KEYS,
    "virtual_clusters": VIRTUAL_CLUSTER_KEYS,
    "virtual_clusters.cells": OWNED_KEYS,
    "maintenance": MAINTENANCE_KEYS,
    "recovery": RECOVERY_KEYS,
}
"""Every key of a cluster file, by the part of the file it belongs to."""


def read_cluster(
    text: str, source: str, read_policy: Callable[[Field], str] = Field.title, now_ms: int = SIMULATION_BEGINS_MS
) -> Cluster:
    """Reads a cluster file. `source` names it in errors; nothing is opened. `read_policy` refuses what is no policy.

    Moments such as `+2h` count from `now_ms`.
    """
    document = read_document(text, source, CLUSTER_LIMITS)
    if document.has("physicalCluster") or document.has(WRAPPER):
        return cluster_of(read_hived(text, source)).cluster
    fields = document.mapping(CLUSTER_KEYS)
    fields.get("version", lambda version: version.integer(1, 1), 1)
    site = _read_site(fields)
    declared = fields.get("domains", lambda domains: read_domains(domains, site.above), {})
    groups = fields.need("nodes", lambda nodes: _read_groups(nodes, site))
    levels = site.levels if "levels" in fields else _used_levels(groups, declared)
    above = levels[: levels.index(NODE)]
    cluster = Cluster(
        nodes=nodes_of(groups, Domains(above, declared)),
        levels=levels,
        links=fields.get("bandwidth", lambda bandwidth: _read_links(bandwidth, levels), {}),
        overcommit=fields.get("overcommit", _read_overcommit, Overcommit()),
        storage=fields.get("storage", lambda storage: _read_tiers(storage, levels), ()),
        policy=fields.get("policy", read_policy, DEFAULT_POLICY),
        name=fields.get("name", Field.title, "cluster"),
    )
    return replace(
        cluster,
        queues=fields.get("queues", lambda queues: read_queues(queues, cluster.total), ()),
        maintenance=fields.get("maintenance", lambda windows: read_maintenance(windows, cluster.nodes, now_ms), ()),
        defragment_ms=fields.get("defragment", read_period, 0),
        patience_ms=fields.get("patience", read_patience, None),
        recovery=fields.get("recovery", lambda recovery: read_recovery(recovery, cluster), None),
        cells=fields.get("virtual_clusters", lambda clusters: read_virtual_clusters(clusters, cluster), None),
    )


def _read_site(fields: Fields) -> Site:
    return Site(
        levels=fields.get("levels", _read_levels, STANDARD_LEVELS),
        tiers=fields.get("storage", _read_tier_names, ()),
        gpu_types=fields.get("gpu_types", _read_gpu_types, {}),
    )


def read_period(field: Field) -> int:
    """How often running jobs may be moved for one that waits; 0 for `never`."""
    if field.is_word("never"):
        return 0
    period_ms = field.duration_ms()
    if period_ms < PERIOD_MIN_MS:
        raise field.expected("never, or a duration of at least a minute")
    return period_ms


def _read_levels(field: Field) -> tuple[str, ...]:
    levels: list[str] = []
    for item in field.items(1, LEVELS_MAX):
        level = item.name()
        if level in levels or level == CLUSTER or level in GROUP_KEYS:
            raise item.expected(f"a name that is not taken by another level, by '{CLUSTER}' or a key of a node")
        levels.append(level)
    if NODE not in levels:
        raise field.error(f"expected '{NODE}' among the levels, got {', '.join(levels)}")
    return tuple(levels)


def _used_levels(groups: Sequence[Group], declared: Mapping[str, Declared]) -> tuple[str, ...]:
    """The levels of a file that does not list its own: those it uses, in the standard order."""
    used = {NODE: True} | {domain.level: True for domain in declared.values()}
    for group in groups:
        used.update((level, True) for level in STANDARD_ABOVE if level in group.fields)
        used.update((level, True) for level, _ in group.node.split)
    return tuple(level for level in STANDARD_LEVELS if level in used)


def _read_groups(field: Field, site: Site) -> list[Group]:
    groups = [read_group(item, site) for item in field.items(1, NODES_MAX)]
    nodes = sum(group.count for group in groups)
    if nodes > NODES_MAX:
        raise field.error(f"expected at most {NODES_MAX} nodes in all, got {nodes}")
    gpus = sum(group.count * group.node.gpus for group in groups)
    if gpus > GPUS_MAX:
        raise field.error(f"expected at most {GPUS_MAX} GPUs in all, got {gpus}")
    return groups


def _read_gpu_types(field: Field) -> dict[str, float]:
    return {name: _read_gpu_type(name, body) for name, body in field.entries(GPU_TYPES_MAX)}


def _read_gpu_type(name: str, field: Field) -> float:
    if not is_name(name):
        raise field.error("expected a name of letters, digits, '.', '-', '_' for a GPU type")
    try:
        known = accelerator(name).name
    except UnknownAccelerator:
        return field.mapping(GPU_TYPE_KEYS).need("memory_gb", lambda gb: gb.number(0, GPU_MEMORY_GB_MAX))
    raise field.error(f"the catalogue has this type as {known}; other memory goes into a node's 'gpu_memory_gb'")


def _read_links(field: Field, levels: tuple[str, ...]) -> dict[str, Link]:
    links = {}
    for level, link in field.entries(LEVELS_MAX + 1):
        if level not in (CLUSTER, *levels):
            raise link.error(f"no such level in this cluster, {nearest(level, (CLUSTER, *levels))}")
        links[level] = _read_link(link)
    return links


def _read_link(field: Field) -> Link:
    if not field.is_mapping:
        return Link(_read_gb_s(field))
    fields = field.mapping(LINK_KEYS)
    latency_us = fields.get("latency_us", lambda latency: latency.number(0, LATENCY_US_MAX), 0.0)
    return Link(fields.need("gb_s", _read_gb_s), latency_us)


def _read_gb_s(field: Field) -> float:
    return field.number(GB_S_MIN, GB_S_MAX)


def _read_tier_names(field: Field) -> tuple[str, ...]:
    return tuple(name for name, _ in field.entries(TIERS_MAX))


def _read_tiers(field: Field, levels: tuple[str, ...]) -> tuple[StorageTier, ...]:
    return tuple(_read_tier(name, tier, levels) for name, tier in field.entries(TIERS_MAX))


def _read_tier(name: str, field: Field, levels: tuple[str, ...]) -> StorageTier:
    if not is_name(name):
        raise field.error("expected a name of letters, digits, '.', '-', '_' for a storage tier")
    tier = field.mapping(TIER_KEYS)
    return StorageTier(
        name,
        scope=tier.get("scope", lambda scope: scope.choice((CLUSTER, *levels)), NODE),
        read_gb_s=tier.get("read_gb_s", _read_gb_s, 0.0),
        write_gb_s=tier.get("write_gb_s", _read_gb_s, 0.0),
        capacity_gb=tier.get("capacity_gb", lambda size: size.integer(0, STORAGE_GB_MAX), 0),
    )


def _read_overcommit(field: Field) -> Overcommit:
    fields = field.mapping(OVERCOMMIT_KEYS)
    return Overcommit(
        cpus=fields.get("cpus", lambda factor: factor.number(1, OVERCOMMIT_MAX), 1.0),
        memory=fields.get("memory", lambda factor: factor.number(1, OVERCOMMIT_MAX), 1.0),
    )
