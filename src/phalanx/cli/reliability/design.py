"""`phalanx reliability design`: the whole design for fault tolerance of a job, as a document with plots."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.exit import Exit
from phalanx.cli.output import Column, Output, emit_one, output_option
from phalanx.cli.reliability.options import SECONDS, fleet_of, gpus_option, node_option

if TYPE_CHECKING:
    from phalanx.faults.reliability.design import Design
    from phalanx.faults.reliability.strategies import Times

COLUMNS = (
    Column("target"),
    Column("reached"),
    Column("strategy"),
    Column("ettr", "ETTR"),
    Column("goodput"),
    Column("mttf_h", "MTTF H"),
    Column("tiers"),
    Column("copies"),
    Column("spares"),
    Column("warm"),
    Column("detect", "DETECT WITHIN"),
    Column("storage"),
    Column("bound", "LOST MOST TO"),
    Column("usd_useful_gpu_h", "USD A USEFUL GPU-HOUR"),
)
DAY_S = 86_400


@click.command()
@gpus_option
@node_option
@click.option("--target-ettr", type=float, required=True, help="Effective training time ratio to reach, such as 0.95.")
@click.option("--profile", default="course-10k", show_default=True, metavar="NAME", help="Failure rates: a profile.")
@click.option("--parameters", type=float, default=405e9, show_default=True, help="Parameters of the model.")
@click.option("--gpu", default="H100", show_default=True, help="Accelerator, for its price in the catalogue.")
@click.option("--usd", type=float, help="Price of a GPU-hour. Default: the median of the catalogue.")
@click.option("--repair", type=SECONDS, default="24h", show_default=True, metavar="TIME", help="Time to repair a node.")
@click.option(
    "--detect", type=SECONDS, default="60s", show_default=True, metavar="TIME", help="Time to notice a failure."
)
@click.option("--restart", type=SECONDS, default="5m", show_default=True, metavar="TIME", help="Time to start the job.")
@click.option(
    "--storage-gb-s", type=float, default=0.0, help="What shared storage writes, in GB/s. Default: 0.02 for each GPU."
)
@click.option("--report", metavar="FILE", help="Write the document: HTML with plots, or Markdown for a name in .md.")
@output_option
def design(report: str | None, output: Output, **given: Any) -> int:
    """Design the fault tolerance of a training job: tiers, intervals, replicas, spares, detection, network and cost.

    Chooses the simplest strategy that reaches the target. If none does, shows the best and what bounds it, and exits
    with 4.
    """
    from phalanx.faults.reliability.design import Wish
    from phalanx.faults.reliability.design import design as design_for
    from phalanx.faults.taxonomy.choose import profile_of

    times = _times(given)
    usd = price_of(given["gpu"]) if given["usd"] is None else given["usd"]
    wish = Wish(
        fleet_of(given["gpus"], given["gpus_per_node"]),
        given["target_ettr"],
        profile_of(given["profile"]),
        given["parameters"],
        usd,
        repair_hours=given["repair"] / 3600,
        storage_gb_s=given["storage_gb_s"],
        times=times,
    )
    found = design_for(wish)
    emit_one(_row(found), COLUMNS, output)
    if report is not None:
        from phalanx.cli.reliability.document import write_document

        write_document(found, report)
    if not found.reached:
        told = f"no strategy reaches {wish.target:.4g}: {found.chosen.strategy.name} comes to {found.chosen.ettr:.4f}"
        click.echo(f"phalanx: {told}, most is lost to {found.bound}", err=True)
        return Exit.REFUSED
    return Exit.OK


def _times(given: dict[str, Any]) -> Times:
    from phalanx.faults.reliability.strategies import Times

    return Times(detect_s=given["detect"], restart_s=given["restart"])


def price_of(name: str) -> float:
    """The median price of a GPU-hour on demand, of the catalogue's instance types with that accelerator."""
    from statistics import median

    from phalanx.cluster.catalogue import accelerator, instances

    canonical = accelerator(name).name
    prices = [each.on_demand_usd_h.value / each.count for each in instances() if each.accelerator == canonical]
    if not prices:
        raise click.UsageError(f"--gpu {name}: the catalogue has no instance type with it; give its price by --usd.")
    return median(prices)


def _row(found: Design) -> dict[str, Any]:
    chosen, traffic = found.chosen, found.traffic
    detect_s = found.detect_most_s
    within = None if detect_s is None else "a day or more" if detect_s > DAY_S - 1 else f"{detect_s:.0f} s"
    return {
        "target": found.wish.target,
        "reached": found.reached,
        "strategy": chosen.strategy.name,
        "ettr": round(chosen.ettr, 4),
        "goodput": round(chosen.goodput, 4),
        "mttf_h": round(found.mttf_hours, 3),
        "tiers": [f"{tier.name} every {tier.interval_s:.0f} s" for tier in chosen.strategy.tiers],
        "copies": found.best.copies,
        "spares": chosen.spares,
        "warm": found.warm,
        "detect": within,
        "storage": f"{traffic.burst_gb_s:.0f} GB/s, {traffic.capacity_tb:.1f} TB",
        "bound": found.bound,
        "usd_useful_gpu_h": round(chosen.usd_useful_gpu_h, 4),
        "options": [
            {
                "strategy": each.strategy.name,
                "ettr": round(each.ettr, 4),
                "goodput": round(each.goodput, 4),
                "usd_useful_gpu_h": round(each.usd_useful_gpu_h, 4),
                "lost": {name: round(share, 4) for name, share in each.lost.items()},
            }
            for each in found.options
        ],
        "times": {each.name: round(getattr(found.times, each.name), 3) for each in fields(found.times)},
    }
