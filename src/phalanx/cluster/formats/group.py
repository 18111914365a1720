"""Groups of equal nodes in a cluster file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from phalanx.cluster.catalogue import InstanceType, accelerator, instances
from phalanx.cluster.cluster import NODE, Node
from phalanx.cluster.formats.domains import Domains, Series
from phalanx.cluster.formats.gpu_type import read_gpu_type
from phalanx.cluster.formats.limits import (
    GPU_MEMORY_GB_MAX,
    GPUS_PER_NODE_MAX,
    LABELS_MAX,
    NICS_MAX,
    NODES_MAX,
    PRICE_USD_H_MAX,
    STORAGE_GB_MAX,
    TIERS_MAX,
)
from phalanx.cluster.formats.taint import read_taints
from phalanx.document import Field, Fields
from phalanx.document.field import MB_PER_GB, is_name, nearest

GROUP_KEYS = (
    "count",
    "name",
    "instance",
    "gpus",
    "gpu_type",
    "gpu_memory_gb",
    "cpus",
    "memory_gb",
    "nics",
    "storage",
    "labels",
    "taints",
    "spot",
    "price",
    "sockets",
    "switches",
    "split",
)
SPLIT_SHORTHANDS = {"sockets": "socket", "switches": "switch"}


@dataclass(frozen=True, slots=True)
class Site:
    """What groups refer to: levels, storage tiers, and the site's own GPU types with their memory in GB."""

    levels: tuple[str, ...]
    tiers: tuple[str, ...]
    gpu_types: Mapping[str, float]

    @property
    def above(self) -> tuple[str, ...]:
        """Levels of domains that hold nodes, outermost first."""
        return self.levels[: self.levels.index(NODE)]

    @property
    def inside(self) -> tuple[str, ...]:
        """Levels that split a node, outermost first."""
        return self.levels[self.levels.index(NODE) + 1 :]


@dataclass(frozen=True, slots=True)
class Group:
    """Equal nodes: how many, and one of them without its name and place."""

    fields: Fields
    count: int
    pattern: str
    node: Node


def read_group(field: Field, site: Site) -> Group:
    """Reads one item of the list of nodes."""
    fields = field.mapping((*GROUP_KEYS, *site.above))
    count = fields.get("count", lambda count: count.integer(1, NODES_MAX), 1)
    return Group(fields, count, _read_names(fields, count), _read_node(fields, site))


def nodes_of(groups: Sequence[Group], domains: Domains) -> tuple[Node, ...]:
    """All nodes of the groups, named and in their domains."""
    named: dict[str, int] = {}
    numbered: dict[str, int] = {}
    nodes: list[Node] = []
    for group in groups:
        line = group.fields.place.line
        for path in _paths(group, domains):
            name = _next_name(group.pattern, numbered)
            if name in named:
                place = group.fields.given(("name",)) or group.fields.place
                raise place.error(
                    f"the node name '{name}' is taken by the group on line {named[name]}, give another 'name'"
                )
            named[name] = line
            nodes.append(replace(group.node, name=name, path=path))
    return tuple(nodes)


def _next_name(pattern: str, numbered: dict[str, int]) -> str:
    if "{}" not in pattern:
        return pattern
    number = numbered.get(pattern, 0)
    numbered[pattern] = number + 1
    return pattern.replace("{}", str(number))


def _paths(group: Group, domains: Domains) -> Iterator[tuple[str, ...]]:
    """The path of each node of a group. It is looked up anew only where a new domain begins."""
    fixed: dict[str, str] = {}
    series: dict[str, Series] = {}
    for level in domains.levels:
        if level in group.fields:
            field = group.fields[level]
            if field.is_mapping:
                series[level] = domains.series(field, level, group.count)
            else:
                fixed[level] = field.name()
    path: tuple[str, ...] = ()
    for index in range(group.count):
        if index == 0 or any(index % each.nodes == 0 for each in series.values()):
            names = {level: each.name(index) for level, each in series.items()}
            path = domains.path(fixed | names, group.fields)
        yield path


def _read_names(fields: Fields, count: int) -> str:
    """The name of the one node, or a pattern: a name without `{}` is what the numbered names begin with."""
    if "name" not in fields:
        return "n{}"
    field = fields["name"]
    text = field.text()
    pattern = text if "{}" in text or count == 1 else text + "{}"
    if not is_name(pattern.replace("{}", "0")):
        raise field.expected("a name of letters, digits, '.', '-', '_', with {} where the number goes")
    return pattern


def _read_node(fields: Fields, site: Site) -> Node:
    spot = fields.get("spot", Field.boolean, False)
    rented = fields.get("instance", lambda instance: _read_instance(instance, spot), Node(""))
    gpus = fields.get("gpus", lambda gpus: gpus.integer(0, GPUS_PER_NODE_MAX), rented.gpus)
    if not gpus:
        fields.refuse(("gpu_type", "gpu_memory_gb"), "the group has no GPUs, give their number in 'gpus'")
    default = rented.gpu_type if gpus else ""
    gpu_type = fields.get("gpu_type", lambda name: read_gpu_type(name, site.gpu_types), default)
    return Node(
        name="",
        gpus=gpus,
        gpu_type=gpu_type,
        gpu_memory_gb=fields.get(
            "gpu_memory_gb", lambda gb: gb.number(0, GPU_MEMORY_GB_MAX), _memory_gb(gpu_type, site)
        ),
        cpus_milli=fields.get("cpus", Field.cpus_milli, rented.cpus_milli),
        memory_mb=fields.get("memory_gb", Field.memory_mb, rented.memory_mb),
        nics=fields.get("nics", lambda nics: nics.integer(0, NICS_MAX), 0),
        storage_gb=fields.get("storage", lambda storage: _read_storage(storage, site), ()),
        labels=fields.get("labels", lambda labels: tuple(sorted(labels.pairs(LABELS_MAX))), ()),
        taints=fields.get("taints", read_taints, ()),
        split=_read_split(fields, site, gpus),
        spot=spot,
        price_usd_h=fields.get("price", lambda price: price.number(0, PRICE_USD_H_MAX), rented.price_usd_h),
    )


def _memory_gb(gpu_type: str, site: Site) -> float:
    """What a device of a type has, by what the file says of its own types (nothing counts, too) or the catalogue."""
    if gpu_type in site.gpu_types:
        return site.gpu_types[gpu_type]
    return accelerator(gpu_type).memory_gb.value if gpu_type else 0.0


def _read_instance(field: Field, spot: bool) -> Node:
    """What a machine for rent has and costs."""
    known = {instance.name: instance for instance in instances()}
    name = field.title()
    if name not in known:
        raise field.error(f"unknown instance type '{name}', {nearest(name, known)}")
    return _rented(known[name], spot)


def _rented(instance: InstanceType, spot: bool) -> Node:
    price = instance.spot_usd_h if spot and instance.spot_usd_h else instance.on_demand_usd_h
    return Node(
        name="",
        gpus=instance.count,
        gpu_type=instance.accelerator,
        cpus_milli=instance.cpus * 1000,
        memory_mb=round(instance.memory_gb * MB_PER_GB),
        price_usd_h=price.value,
    )


def _read_storage(field: Field, site: Site) -> tuple[tuple[str, int], ...]:
    """Gigabytes per tier. Where the file lists its tiers, only these."""
    storage = []
    for tier, size in field.entries(TIERS_MAX):
        if site.tiers and tier not in site.tiers:
            raise size.error(f"unknown storage tier, {nearest(tier, site.tiers)}")
        storage.append((size.key(tier), size.integer(0, STORAGE_GB_MAX)))
    return tuple(sorted(storage))


def _read_split(fields: Fields, site: Site, gpus: int) -> tuple[tuple[str, int], ...]:
    """Into how many parts each level inside the node divides it, outermost first."""
    given: dict[str, Field] = {}
    if "split" in fields:
        given.update(fields["split"].mapping(site.inside).items())
    for key, level in SPLIT_SHORTHANDS.items():
        if key in fields:
            if level in given or level not in site.inside:
                raise fields[key].error(f"expected '{level}' among the levels and not in 'split' too")
            given[level] = fields[key]
    split: list[tuple[str, int]] = []
    for level in site.inside:
        if level in given:
            outer = split[-1][1] if split else 1
            split.append((level, _read_parts(given[level], gpus, outer)))
    return tuple(split)


def _read_parts(field: Field, gpus: int, outer: int) -> int:
    parts = field.integer(1, GPUS_PER_NODE_MAX)
    if gpus % parts:
        raise field.error(f"{gpus} GPUs cannot be split into {parts} equal parts")
    if parts % outer:
        raise field.error(f"{parts} parts cannot be split evenly over the {outer} of the level outside")
    return parts
