"""What a row of the catalogue says.

A source that says "not re-checked" was quoted from memory of the vendor's document. "Estimate" and "approximate" mean
that no exact number was found. Prices are for US regions.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

Source: TypeAlias = tuple[str, str]
"""A document and its date, or the date on which it was read: YYYY, YYYY-MM or YYYY-MM-DD."""

Cited: TypeAlias = tuple[float, Source]
"""A number and where it comes from."""


class AcceleratorRow(NamedTuple):
    """One accelerator; the unit of each number is the end of its name, rates are one way for one device."""

    name: str
    vendor: str
    year: int
    memory_gb: Cited
    peak_bf16_tflops: Cited
    hbm_gb_s: Cited
    in_node_gb_s: Cited
    scale_out_gb_s: Cited
    power_w: Cited
    peak_note: str = ""
    mig: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


class InstanceRow(NamedTuple):
    """One instance type; prices are for the whole machine."""

    name: str
    cloud: str
    accelerator: str
    accelerator_count: int
    cpus: int
    memory_gb: float
    network_gbit_s: float
    on_demand_usd_h: Cited
    spot_usd_h: Cited | None


HYPERSCALERS: Source = ("Vendor list price as gathered by datareceipts, us-east-1 or eastus", "2026-11-09")
