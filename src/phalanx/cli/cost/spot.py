"""`phalanx cost spot`: a job with a deadline on nodes that can be taken back, under several policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.reliability.options import SECONDS

if TYPE_CHECKING:
    from phalanx.faults.spot.run import Outcome
    from phalanx.faults.spot.task import Task
    from phalanx.faults.spot.zone import Zone

COLUMNS = (
    Column("policy"),
    Column("met", "DEADLINES MET"),
    Column("usd", "USD"),
    Column("saved", "BELOW ON DEMAND"),
    Column("finish_h", "DONE AFTER H"),
    Column("spot_h", "SPOT H"),
    Column("on_demand_h", "ON DEMAND H"),
    Column("lost_h", "LOST H"),
    Column("reclaims"),
)


@click.command()
@click.option("--work", type=SECONDS, required=True, metavar="TIME", help="Length of the job without interruptions.")
@click.option("--deadline", type=SECONDS, required=True, metavar="TIME", help="When it must be done, from now.")
@click.option("--gpus", type=click.IntRange(1, 1_000_000), default=8, show_default=True, help="GPUs of the job.")
@click.option("--gpu", default="H100", show_default=True, help="Accelerator, for its prices in the catalogue.")
@click.option("--spot-usd", type=float, multiple=True, help="Spot price of a GPU-hour; once for each region.")
@click.option("--on-demand-usd", type=float, help="On-demand price of a GPU-hour. Default: of the catalogue.")
@click.option(
    "--regions",
    metavar="FILE",
    help="Regions with their prices and capacity, instead of the catalogue's: a CSV of region, instance, "
    "on_demand_usd_h, spot_usd_h, nodes. Those with too few nodes of --gpu are left out.",
)
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="FILE",
    help="When spot nodes are there: 0 or 1 for each six minutes; once for each region. Default: drawn at random.",
)
@click.option(
    "--there", type=SECONDS, default="4h", show_default=True, metavar="TIME", help="Mean time until a reclaim."
)
@click.option("--gone", type=SECONDS, default="2h", show_default=True, metavar="TIME", help="Mean time without nodes.")
@click.option("--start", type=SECONDS, default="6m", show_default=True, metavar="TIME", help="Time to start or move.")
@click.option("--save", type=SECONDS, default="1m", show_default=True, metavar="TIME", help="Time of a checkpoint.")
@click.option("--notice", type=SECONDS, default="2m", show_default=True, metavar="TIME", help="Notice of a reclaim.")
@click.option("--every", type=SECONDS, metavar="TIME", help="Work between checkpoints. Default: the best interval.")
@click.option("--runs", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Drawn traces to average.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the drawn traces.")
@click.option("--report", metavar="FILE", help="Write the chart as an HTML page.")
@output_option
def spot(report: str | None, output: Output, **given: Any) -> None:
    """Compare policies for spot capacity: what the job costs, when it is done, and what work is lost.

    uniform is Uniform Progress: it keeps every deadline. cheapest waits for spot nodes until the last moment.
    """
    from phalanx.faults.spot.policies import POLICIES
    from phalanx.faults.spot.run import run

    rows, base = [], 0.0
    cases = [_case(given, seed) for seed in range(given["seed"], given["seed"] + _runs(given))]
    found = {name: [(task, run(task, policy, zones)) for task, zones in cases] for name, policy in POLICIES.items()}
    base = sum(outcome.usd for _, outcome in found["on demand only"]) / len(cases)
    for name, outcomes in found.items():
        rows.append({"policy": name, **_figures(outcomes, base)})
    emit(rows, COLUMNS, output)
    if report is not None:
        from phalanx.cli.cost.charts import spot_chart
        from phalanx.cli.reliability.pages import write_page

        overview = (
            f"{given['work'] / 3600:g} hours of work on {given['gpus']} GPUs within {given['deadline'] / 3600:g} hours."
        )
        write_page(report, "Spot capacity with a deadline", overview, [("policies", "Policies", [spot_chart(rows)])])


def _runs(given: dict[str, Any]) -> int:
    return 1 if given["traces"] else int(given["runs"])


def _case(given: dict[str, Any], seed: int) -> tuple[Task, list[Zone]]:
    from phalanx.faults.spot.task import Task, best_interval_h

    zones = _zones(given, seed)
    hours = {name: given[name] / 3600 for name in ("work", "deadline", "start", "save", "notice")}
    rate = max(zone.reclaims_per_h for zone in zones)
    every_h = given["every"] / 3600 if given["every"] else best_interval_h(hours["save"], rate, hours["work"])
    return Task(hours["work"], hours["deadline"], hours["start"], hours["save"], hours["notice"], every_h), zones


def _zones(given: dict[str, Any], seed: int) -> list[Zone]:
    """A region for each price or trace, whichever are more; what is given once counts for all."""
    from phalanx.cli.files import text_of
    from phalanx.faults.spot.zone import Zone, drawn, read_trace

    priced = _regions(given)
    traces, count = given["traces"], max(len(priced), len(given["traces"]), 1)
    if len(priced) not in (1, count) or len(traces) not in (0, 1, count):
        raise click.UsageError(
            f"there are prices of {len(priced)} regions and --trace is given {len(traces)} times: expected as many of "
            "both."
        )
    zones = []
    for number in range(count):
        if traces:
            path = traces[number % len(traces)]
            there = read_trace(text_of(path), path)
        else:
            hours = given["deadline"] / 3600 * 2
            there = drawn(seed * count + number, hours, given["there"] / 3600, given["gone"] / 3600)
        name, spot_usd, on_demand_usd = priced[number % len(priced)]
        zones.append(
            Zone(name or f"region {number + 1}", spot_usd * given["gpus"], on_demand_usd * given["gpus"], there)
        )
    return zones


def _regions(given: dict[str, Any]) -> list[tuple[str, float, float]]:
    """The name of each region, and its prices of a GPU-hour, spot and on demand."""
    if given["regions"] is None:
        spot_usd, on_demand_usd = _prices(given)
        return [("", each, on_demand_usd) for each in spot_usd]
    if given["spot_usd"] or given["on_demand_usd"] is not None:
        raise click.UsageError("--regions has the prices: leave out --spot-usd and --on-demand-usd.")
    from phalanx.cli.files import text_of
    from phalanx.cluster.catalogue import accelerator
    from phalanx.compat.platforms.regions import read_offers

    gpu = accelerator(given["gpu"]).name
    found = []
    for offer in read_offers(text_of(given["regions"]), given["regions"]):
        count = offer.instance.count
        if offer.instance.accelerator == gpu and offer.spot_usd_h is not None and offer.has(-(-given["gpus"] // count)):
            found.append((offer.region, offer.spot_usd_h / count, offer.on_demand_usd_h / count))
    if not found:
        raise click.UsageError(
            f"--regions {given['regions']}: no region has spot capacity of {given['gpus']} GPUs {gpu}: expected one."
        )
    return found


def _prices(given: dict[str, Any]) -> tuple[Sequence[float], float]:
    from statistics import median

    from phalanx.cluster.catalogue import accelerator, instances

    name = accelerator(given["gpu"]).name
    known = [each for each in instances() if each.accelerator == name]
    spot_usd = given["spot_usd"]
    if not spot_usd:
        listed = [each.spot_usd_h.value / each.count for each in known if each.spot_usd_h is not None]
        if not listed:
            raise click.UsageError(f"--gpu {name}: the catalogue has no spot price of it; give one by --spot-usd.")
        spot_usd = (median(listed),)
    if given["on_demand_usd"] is not None:
        return spot_usd, given["on_demand_usd"]
    if not known:
        raise click.UsageError(f"--gpu {name}: the catalogue has no price of it; give one by --on-demand-usd.")
    return spot_usd, median(each.on_demand_usd_h.value / each.count for each in known)


def _figures(outcomes: Sequence[tuple[Task, Outcome]], on_demand_usd: float) -> dict[str, Any]:
    """Means over all runs; of the end, over those that came to one."""
    count = len(outcomes)

    def mean(name: str) -> float:
        return round(float(sum(getattr(outcome, name) for _, outcome in outcomes)) / count, 3)

    ends = [outcome.finish_h for _, outcome in outcomes if outcome.finish_h is not None]
    usd = mean("usd")
    return {
        "met": f"{sum(outcome.met(task) for task, outcome in outcomes)} of {count}",
        "usd": round(usd, 2),
        "saved": f"{1 - usd / on_demand_usd:.1%}" if on_demand_usd else None,
        "finish_h": round(sum(ends) / len(ends), 2) if ends else None,
        **{name: mean(name) for name in ("spot_h", "on_demand_h", "lost_h", "reclaims")},
    }
