"""The hardware people rent: accelerators and instance types, each figure with its source and date."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import ClassVar

from phalanx.cluster.hardware import aws, clouds, gcp, nvidia, other_vendors
from phalanx.cluster.hardware.rows import AcceleratorRow, Cited, InstanceRow
from phalanx.errors import PhalanxError


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its unit, the document it comes from, and the date of that document or of reading it."""

    value: float
    unit: str
    source: str
    date: str


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One kind of device, as the scheduler counts devices.

    `in_node_gb_s` and `scale_out_gb_s` are what one device sends, in one direction: inside its node (NVLink
    domain, torus), and to other nodes of the vendor's reference system. `peak_bf16_tflops` is dense; where the
    device has no bf16, `peak_note` says which format is given instead.
    """

    name: str
    vendor: str
    year: int
    memory_gb: Figure
    peak_bf16_tflops: Figure
    hbm_gb_s: Figure
    in_node_gb_s: Figure
    scale_out_gb_s: Figure
    power_w: Figure
    peak_note: str = ""
    mig: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def figures(self) -> tuple[tuple[str, Figure], ...]:
        """Every figure with the name of its field, in the order of declaration."""
        return (
            ("memory_gb", self.memory_gb),
            ("peak_bf16_tflops", self.peak_bf16_tflops),
            ("hbm_gb_s", self.hbm_gb_s),
            ("in_node_gb_s", self.in_node_gb_s),
            ("scale_out_gb_s", self.scale_out_gb_s),
            ("power_w", self.power_w),
        )


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A machine for rent. `accelerator` is a canonical name; `network_gbit_s` is for the whole machine.

    `memory_gb` is as the cloud lists it. `spot_usd_h` is None where no spot price is known.
    `shape_source` and `shape_date` say where counts, CPUs, memory and network come from.
    """

    name: str
    cloud: str
    accelerator: str
    count: int
    cpus: int
    memory_gb: float
    network_gbit_s: float
    on_demand_usd_h: Figure
    spot_usd_h: Figure | None
    shape_source: str
    shape_date: str


class UnknownAccelerator(PhalanxError, ValueError):  # noqa: N818 - it names what is unknown
    """No accelerator has this name or alias. `close` holds the canonical names that look most like it."""

    exit_code: ClassVar[int] = 3

    def __init__(self, name: str, close: tuple[str, ...]) -> None:
        hint = f"did you mean {' or '.join(close)}?" if close else "`phalanx hardware` lists them all"
        super().__init__(f"no accelerator {name!r} in the catalogue: {hint}")
        self.name = name
        self.close = close


def accelerators() -> tuple[Accelerator, ...]:
    """All accelerators, by vendor and then from the oldest to the newest."""
    return _ACCELERATORS


def instances() -> tuple[InstanceType, ...]:
    """All instance types, by cloud."""
    return _INSTANCES


def accelerator(name: str) -> Accelerator:
    """The accelerator of that name or alias; case, spaces, `-` and `_` make no difference."""
    found = _BY_KEY.get(_key(name))
    if found is None:
        raise UnknownAccelerator(name, _close(name))
    return found


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")


def _close(name: str) -> tuple[str, ...]:
    matches = difflib.get_close_matches(_key(name), list(_BY_KEY), n=8, cutoff=0.5)
    return tuple(dict.fromkeys(_BY_KEY[match].name for match in matches))[:3]


def _figure(cited: Cited, unit: str) -> Figure:
    value, (source, date) = cited
    return Figure(float(value), unit, source, date)


def _accelerator(row: AcceleratorRow) -> Accelerator:
    return Accelerator(
        name=row.name,
        vendor=row.vendor,
        year=row.year,
        memory_gb=_figure(row.memory_gb, "GB"),
        peak_bf16_tflops=_figure(row.peak_bf16_tflops, "TFLOP/s"),
        hbm_gb_s=_figure(row.hbm_gb_s, "GB/s"),
        in_node_gb_s=_figure(row.in_node_gb_s, "GB/s"),
        scale_out_gb_s=_figure(row.scale_out_gb_s, "GB/s"),
        power_w=_figure(row.power_w, "W"),
        peak_note=row.peak_note,
        mig=row.mig,
        aliases=row.aliases,
    )


def _instance(row: InstanceRow) -> InstanceType:
    shape_source, shape_date = _SHAPES[row.cloud]
    return InstanceType(
        name=row.name,
        cloud=row.cloud,
        accelerator=row.accelerator,
        count=row.accelerator_count,
        cpus=row.cpus,
        memory_gb=float(row.memory_gb),
        network_gbit_s=float(row.network_gbit_s),
        on_demand_usd_h=_figure(row.on_demand_usd_h, "USD/h"),
        spot_usd_h=None if row.spot_usd_h is None else _figure(row.spot_usd_h, "USD/h"),
        shape_source=shape_source,
        shape_date=shape_date,
    )


_ACCELERATORS = tuple(_accelerator(row) for row in (*nvidia.ACCELERATORS, *other_vendors.ACCELERATORS))
_SHAPES = {**aws.SHAPES, **gcp.SHAPES, **clouds.SHAPES}
_INSTANCES = tuple(_instance(row) for row in (*aws.INSTANCES, *gcp.INSTANCES, *clouds.INSTANCES))
_BY_KEY = {_key(name): each for each in _ACCELERATORS for name in (each.name, *each.aliases)}
