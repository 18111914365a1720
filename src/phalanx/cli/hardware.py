"""`phalanx hardware`: the catalogue on the terminal and as `docs/reference/hardware.md`.

`python -m phalanx.cli.hardware > docs/reference/hardware.md` writes the page anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from difflib import get_close_matches

import click

from phalanx.cli.exit import Exit
from phalanx.cli.output import Column, Output, cell, emit, emit_one, output_option
from phalanx.cluster.catalogue import (
    Accelerator,
    Figure,
    InstanceType,
    UnknownAccelerator,
    accelerator,
    accelerators,
    instances,
)
from phalanx.errors import PhalanxError

ACCELERATOR_COLUMNS = (
    Column("name"),
    Column("vendor"),
    Column("year"),
    Column("memory_gb", "MEMORY GB"),
    Column("peak_bf16_tflops", "BF16 TFLOP/S"),
    Column("hbm_gb_s", "HBM GB/S"),
    Column("in_node_gb_s", "IN NODE GB/S"),
    Column("scale_out_gb_s", "SCALE OUT GB/S"),
    Column("power_w", "POWER W"),
    Column("peak_note", "PEAK NOTE"),
    Column("mig", "MIG", wide=True),
    Column("aliases", wide=True),
)
ONE_COLUMNS = (
    Column("name"),
    Column("vendor"),
    Column("year"),
    Column("peak_note"),
    Column("mig", "MIG"),
    Column("aliases"),
)
FIGURE_COLUMNS = (Column("figure"), Column("value"), Column("unit"), Column("date"), Column("source"))
INSTANCE_COLUMNS = (
    Column("name"),
    Column("cloud"),
    Column("accelerator"),
    Column("count"),
    Column("cpus", "CPUS"),
    Column("memory_gb", "MEMORY GB"),
    Column("network_gbit_s", "NETWORK GBIT/S"),
    Column("on_demand_usd_h", "ON DEMAND USD/H"),
    Column("spot_usd_h", "SPOT USD/H"),
    Column("on_demand_date", "ON DEMAND AS OF", wide=True),
    Column("on_demand_source", wide=True),
    Column("spot_date", "SPOT AS OF", wide=True),
    Column("spot_source", wide=True),
)
ONE_INSTANCE_COLUMNS = INSTANCE_COLUMNS[:7]


@click.command()
@click.argument("name", required=False)
@click.option(
    "--instances",
    "show_instances",
    is_flag=True,
    help="List instance types; with NAME, those that have this accelerator.",
)
@output_option
def hardware(name: str | None, show_instances: bool, output: Output) -> None:
    """List the known accelerators, or show the accelerator or instance type NAME.

    NAME is shown with the source and date of each figure.
    """
    if name is None:
        emit_instances(instances(), output) if show_instances else emit_accelerators(output)
        return
    found = find(name)
    if isinstance(found, InstanceType):
        emit_instance(found, output)
    elif show_instances:
        emit_instances((each for each in instances() if each.accelerator == found.name), output)
    else:
        emit_accelerator(found, output)


def find(name: str) -> Accelerator | InstanceType:
    """The accelerator of a name, or the instance type; case makes no difference."""
    known = {each.name.casefold(): each for each in instances()}
    if name.casefold() in known:
        return known[name.casefold()]
    try:
        return accelerator(name)
    except UnknownAccelerator as error:
        close = (*error.close, *(known[each].name for each in get_close_matches(name.casefold(), known)))
        raise UnknownHardware(name, close) from None


class UnknownHardware(PhalanxError):  # noqa: N818
    """Nothing of the catalogue has this name."""

    exit_code = Exit.NOT_FOUND

    def __init__(self, name: str, close: tuple[str, ...]) -> None:
        lists = "`phalanx hardware` and `phalanx hardware --instances` list them all"
        hint = f"did you mean {' or '.join(close)}?" if close else lists
        super().__init__(f"no accelerator or instance type {name!r} in the catalogue: {hint}")


def emit_accelerators(output: Output) -> None:
    as_row = accelerator_record if is_for_programs(output) else accelerator_line
    emit([as_row(each) for each in accelerators()], ACCELERATOR_COLUMNS, output)


def emit_instances(chosen: Iterable[InstanceType], output: Output) -> None:
    as_row = instance_record if is_for_programs(output) else instance_line
    emit([as_row(each) for each in chosen], INSTANCE_COLUMNS, output)


def emit_accelerator(one: Accelerator, output: Output) -> None:
    record = accelerator_record(one)
    emit_one(record, [column for column in ONE_COLUMNS if record[column.key]], output)
    if output in ("table", "wide"):
        click.echo()
        emit([{"figure": key, **asdict(figure)} for key, figure in one.figures], FIGURE_COLUMNS, output)


def emit_instance(one: InstanceType, output: Output) -> None:
    emit_one(instance_record(one), ONE_INSTANCE_COLUMNS, output)
    if output in ("table", "wide"):
        click.echo()
        prices = (("on_demand_usd_h", one.on_demand_usd_h), ("spot_usd_h", one.spot_usd_h))
        figures = [{"figure": key, **asdict(figure)} for key, figure in prices if figure is not None]
        shape = {"figure": "all else", "date": one.shape_date, "source": one.shape_source}
        emit([*figures, shape], FIGURE_COLUMNS, output)


def is_for_programs(output: Output) -> bool:
    """Programs get each figure with its source; in a table of many things only its value fits."""
    return output in ("json", "yaml")


def accelerator_record(one: Accelerator) -> dict[str, object]:
    # YAML's safe writer knows lists, not tuples.
    return asdict(one) | {"mig": list(one.mig), "aliases": list(one.aliases)}


def accelerator_line(one: Accelerator) -> dict[str, object]:
    return accelerator_record(one) | {key: figure.value for key, figure in one.figures}


def instance_record(one: InstanceType) -> dict[str, object]:
    return asdict(one)


def instance_line(one: InstanceType) -> dict[str, object]:
    spot = one.spot_usd_h
    return asdict(one) | {
        "on_demand_usd_h": one.on_demand_usd_h.value,
        "on_demand_date": one.on_demand_usd_h.date,
        "on_demand_source": one.on_demand_usd_h.source,
        "spot_usd_h": spot.value if spot else None,
        "spot_date": spot.date if spot else None,
        "spot_source": spot.source if spot else None,
    }


def reference_page() -> str:
    """The page `docs/reference/hardware.md`, made from the catalogue."""
    sources = number_sources()
    return f"""\
# Hardware catalogue

`phalanx hardware` lists it, `phalanx hardware H100` shows one accelerator with the source and date of each
figure, `phalanx hardware --instances` lists machines for rent and `phalanx hardware p5.48xlarge` shows one; `-o json`
gives all of it to programs.

- Peaks are dense (no sparsity) and bf16; a note says where a device has none and which format stands instead.
- Bandwidths are gigabytes (10⁹ bytes) per second for one device **in one direction**. In node: what the device
  sends inside its node, NVLink domain or torus, all links together. Vendors often print both directions added
  up: halve that. Scale out: its share of the network of the vendor's reference system, or of the cloud machine
  named in the source.
- A K80 is one of the two GPUs of a board; a TPU, a Trainium2 and an MI250 are one whole chip or module.
  GB200 is one of the 72 GPUs of an NVL72 rack, whose NVLink domain counts as its node.
- `A100` means `A100-80`. PCIe boards of the A100 go by the same names, though they have no NVSwitch; the PCIe
  boards of other kinds differ more and are not in the catalogue.
- Prices are list prices per hour of the whole machine in a US region. Spot prices move: take them as typical.
- A number in brackets is the [source](#sources). A source that says "not re-checked" was quoted from memory of
  that document; "estimate" and "approximate" mean that no exact number was found.

## Accelerators

{accelerator_table(sources)}
## Names and MIG profiles

Case, spaces, `-` and `_` make no difference in a name. The profiles are those of NVIDIA's MIG User Guide.

{name_table()}
## Instance types

{instance_table(sources)}
CPUs, memory and network of the machines come from [{shape_sources(sources)}], in the order of the clouds.

## Sources

{source_list(sources)}"""


def number_sources() -> dict[tuple[str, str], int]:
    """Each source with its number, in the order in which the page first needs it."""
    figures = [figure for each in accelerators() for _, figure in each.figures]
    figures += [figure for each in instances() for figure in (each.on_demand_usd_h, each.spot_usd_h) if figure]
    cited = [(figure.source, figure.date) for figure in figures]
    cited += [(each.shape_source, each.shape_date) for each in instances()]
    return {source: number for number, source in enumerate(dict.fromkeys(cited), start=1)}


def accelerator_table(sources: dict[tuple[str, str], int]) -> str:
    header = ["name", "vendor", "year", "memory GB", "bf16 TFLOP/s", "HBM GB/s", "in node GB/s"]
    rows = [
        [each.name, each.vendor, each.year, *(cited(figure, sources) for _, figure in each.figures), each.peak_note]
        for each in accelerators()
    ]
    return markdown_table([*header, "scale out GB/s", "power W", "note on the peak"], rows)


def name_table() -> str:
    rows = [[each.name, code_list(each.aliases), code_list(each.mig)] for each in accelerators()]
    return markdown_table(["name", "also known as", "MIG profiles"], rows)


def instance_table(sources: dict[tuple[str, str], int]) -> str:
    header = ["name", "cloud", "accelerators", "CPUs", "memory GB", "network Gbit/s"]
    rows = [
        [
            f"`{each.name}`",
            each.cloud,
            f"{each.count} × {each.accelerator}",
            each.cpus,
            each.memory_gb,
            each.network_gbit_s,
            cited(each.on_demand_usd_h, sources),
            cited(each.spot_usd_h, sources) if each.spot_usd_h else "none known",
        ]
        for each in instances()
    ]
    return markdown_table([*header, "on demand USD/h", "spot USD/h"], rows)


def shape_sources(sources: dict[tuple[str, str], int]) -> str:
    shapes = dict.fromkeys((each.shape_source, each.shape_date) for each in instances())
    return ", ".join(str(sources[shape]) for shape in shapes)


def source_list(sources: dict[tuple[str, str], int]) -> str:
    return "".join(f"{number}. {source} ({date})\n" for (source, date), number in sources.items())


def cited(figure: Figure, sources: dict[tuple[str, str], int]) -> str:
    return f"{cell(figure.value)} [{sources[figure.source, figure.date]}]"


def code_list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def markdown_table(header: list[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *([cell(value) for value in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    click.echo(reference_page(), nl=False)
