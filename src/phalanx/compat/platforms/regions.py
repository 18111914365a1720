"""Regions: prices and capacity of instance types in regions of clouds, from a file of one's own."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from math import isfinite

from phalanx.cluster.catalogue import InstanceType, instances
from phalanx.document.error import brief
from phalanx.errors import PhalanxError

REQUIRED = ("region", "instance", "on_demand_usd_h")
OPTIONAL = ("spot_usd_h", "nodes")


class RegionError(PhalanxError):
    """A file of regions that says something that cannot be."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Nodes of one type in one region: their prices by the hour, and how many can be had; None: as many as wanted."""

    region: str
    instance: InstanceType
    on_demand_usd_h: float
    spot_usd_h: float | None
    nodes: int | None

    def usd_h(self, spot: bool) -> float | None:
        """The price of a node; None where there is no spot capacity."""
        return self.spot_usd_h if spot else self.on_demand_usd_h

    def has(self, nodes: int) -> bool:
        """Whether so many can be had."""
        return self.nodes is None or nodes <= self.nodes


def read_offers(text: str, source: str) -> tuple[Offer, ...]:
    """Reads a CSV of `region, instance, on_demand_usd_h` and, where known, `spot_usd_h` and `nodes`."""
    rows = csv.DictReader(StringIO(text))
    header = rows.fieldnames or ()
    for name in REQUIRED:
        if name not in header:
            raise RegionError(f"{source}:1: there is no column {name} (expected: {', '.join((*REQUIRED, *OPTIONAL))})")
    for name in header:
        if name not in (*REQUIRED, *OPTIONAL):
            known = ", ".join((*REQUIRED, *OPTIONAL))
            raise RegionError(f"{source}:1: there is no column {brief(str(name))} of regions (there is: {known})")
    offers = tuple(_offers(rows, source))
    if not offers:
        raise RegionError(f"{source}: has no rows: expected at least one region")
    return offers


def _offers(rows: csv.DictReader[str], source: str) -> Iterator[Offer]:
    types = {each.name: each for each in instances()}
    seen: dict[tuple[str, str], int] = {}
    for row in rows:
        at, region, name = f"{source}:{rows.line_num}", row["region"] or "", row["instance"] or ""
        if not region:
            raise RegionError(f"{at}: region is empty: expected a name, such as eu-west-1")
        if name not in types:
            raise RegionError(
                f"{at}: no instance type {brief(name)} in the catalogue: see `phalanx hardware --instances`"
            )
        if (region, name) in seen:
            raise RegionError(
                f"{at}: {name} in {region} is given in line {seen[region, name]} already: expected it once"
            )
        seen[region, name] = rows.line_num
        on_demand = _price(row, "on_demand_usd_h", at)
        if on_demand is None:
            raise RegionError(f"{at}: on_demand_usd_h is empty: expected a price of at least 0")
        yield Offer(region, types[name], on_demand, _price(row, "spot_usd_h", at), _nodes(row, at))


def _price(row: Mapping[str, str | None], name: str, at: str) -> float | None:
    text = (row.get(name) or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (isfinite(value) and value >= 0):
        raise RegionError(f"{at}: {name} is {brief(text)}: expected a price of at least 0")
    return value


def _nodes(row: Mapping[str, str | None], at: str) -> int | None:
    text = (row.get("nodes") or "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise RegionError(f"{at}: nodes is {brief(text)}: expected a whole number of at least 0")
    return int(text)
