"""`phalanx platforms`: the same job for other platforms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.output import Column, Output, as_json, as_yaml, emit, output_option
from phalanx.cli.reliability.options import SECONDS

if TYPE_CHECKING:
    from phalanx.cluster.catalogue import InstanceType
    from phalanx.compat.platforms.platform import Platform
    from phalanx.compat.platforms.regions import Offer
    from phalanx.compat.platforms.shape import Shape

COLUMNS = (
    Column("platform"),
    Column("cloud"),
    Column("instance"),
    Column("region"),
    Column("nodes"),
    Column("usd_gpu_h", "USD/GPU-H"),
    Column("usd_useful_gpu_h", "USD/USEFUL GPU-H"),
    Column("lost", "LOST IN TRANSLATION"),
    Column("file"),
)


@click.command()
@click.argument("file", metavar="JOB")
@click.option("--write", "folder", metavar="DIR", help="Write a file for each platform into this folder.")
@click.option("--only", multiple=True, metavar="NAME", help="Only this platform; may be repeated.")
@click.option("--spot", is_flag=True, help="Ask for spot capacity where the platform has it.")
@click.option(
    "--reclaim-every",
    type=SECONDS,
    default="8h",
    show_default=True,
    metavar="TIME",
    help="Mean time until a spot node of the job is taken back.",
)
@click.option(
    "--restart", type=SECONDS, default="10m", show_default=True, metavar="TIME", help="Time to start again after that."
)
@click.option("--save", type=SECONDS, default="30s", show_default=True, metavar="TIME", help="Time of a checkpoint.")
@click.option("--gpu", default="H100", show_default=True, help="Accelerator, if the job names none.")
@click.option(
    "--regions",
    metavar="FILE",
    help="Prices and capacity of regions, instead of the catalogue's: a CSV of region, instance, on_demand_usd_h, "
    "spot_usd_h, nodes.",
)
@click.option("--image", default="", help="Container image. Default: that of the job.")
@click.option("--bucket", default="BUCKET", show_default=True, help="Bucket for outputs and checkpoints.")
@output_option
def platforms(
    file: str, folder: str | None, only: tuple[str, ...], regions: str | None, output: Output, **given: Any
) -> None:
    """Write JOB for other platforms, with what they cannot say and the price of a useful GPU-hour there.

    Platforms: skypilot, sagemaker, vertex, databricks, kubeflow, aws-batch. Prices are of the catalogue. On spot
    capacity the useful part is reduced by reclaims. With --regions the cheapest region that has enough nodes counts.
    Nothing is called.
    """
    from phalanx.cli.files import text_of
    from phalanx.compat.platforms.platform import PLATFORMS
    from phalanx.compat.platforms.shape import shape_of
    from phalanx.workload.formats.native import read_job

    names = [each.name for each in PLATFORMS]
    for name in only:
        if name not in names:
            raise click.UsageError(f"--only {name}: expected one of {', '.join(names)}.")
    if folder is not None and not Path(folder).is_dir():
        raise click.UsageError(f"--write {folder}: there is no such folder.")
    job = read_job(text_of(file), file, "1", 0)
    shape = shape_of(job, given["gpu"], given["image"], given["bucket"], given["spot"])
    useful = _useful_share(given) if given["spot"] else 1.0
    offers = None
    if regions is not None:
        from phalanx.compat.platforms.regions import read_offers

        offers = read_offers(text_of(regions), regions)
    chosen = [each for each in PLATFORMS if not only or each.name in only]
    rows = [_row(each, shape, useful, folder, offers) for each in chosen]
    emit(rows, COLUMNS if offers is not None else [each for each in COLUMNS if each.key != "region"], output)


def _useful_share(given: dict[str, Any]) -> float:
    """The part of its time on spot capacity in which a job does work that is kept."""
    from phalanx.faults.reliability.course import Course
    from phalanx.faults.reliability.ettr import exact_ettr
    from phalanx.faults.reliability.intervals import exact_s

    every_s, save_s = given["reclaim_every"], given["save"]
    if not every_s or not save_s:
        raise click.UsageError("--reclaim-every and --save: expected times above 0.")
    return exact_ettr(Course(3600 / every_s, exact_s(save_s, every_s), save_s, restart_s=given["restart"]))


def _in_catalogue(platform: Platform, shape: Shape) -> Iterator[tuple[float, InstanceType, str | None]]:
    """What a node costs an hour in each of the platform's clouds."""
    for cloud in platform.clouds:
        instance = shape.instance(cloud)
        price = None if instance is None else instance.spot_usd_h if shape.spot else instance.on_demand_usd_h
        if instance is not None and price is not None:
            yield price.value, instance, None


def _in_regions(
    platform: Platform, shape: Shape, offers: Iterable[Offer]
) -> Iterator[tuple[float, InstanceType, str | None]]:
    """Likewise in each region of these clouds that has enough nodes with enough GPUs."""
    for offer in offers:
        usd, instance = offer.usd_h(shape.spot), offer.instance
        is_such = instance.accelerator == shape.gpu and instance.count >= shape.gpus
        if usd is not None and is_such and instance.cloud in platform.clouds and offer.has(shape.nodes):
            yield usd, instance, offer.region


def _row(
    platform: Platform, shape: Shape, useful: float, folder: str | None, offers: Sequence[Offer] | None
) -> dict[str, Any]:
    """The cheapest of the platform's clouds, or of their regions, that has such nodes."""
    found = _in_catalogue(platform, shape) if offers is None else _in_regions(platform, shape, offers)
    usd_h, instance, region = min(found, key=lambda each: each[0], default=(None, None, None))
    usd = None if usd_h is None else usd_h * (1 + platform.fee) / shape.gpus
    path = None
    if folder is not None:
        where = f"{instance.cloud.lower()}/{region}" if instance and region else ""
        content = platform.write(replace(shape, where=where), instance)
        target = Path(folder) / f"{shape.name}.{platform.name}.{platform.suffix}"
        target.write_text(as_yaml(content) if platform.suffix == "yaml" else as_json(content) + "\n", encoding="utf-8")
        path = str(target)
    return {
        "platform": platform.name,
        "cloud": instance.cloud if instance else None,
        "instance": instance.name if instance else None,
        **({} if offers is None else {"region": region}),
        "nodes": shape.nodes,
        "usd_gpu_h": None if usd is None else round(usd, 3),
        "usd_useful_gpu_h": None if usd is None else round(usd / useful, 3),
        "lost": [feature.value for feature in platform.lost(shape)],
        "file": path,
    }
