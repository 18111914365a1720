"""`phalanx cost own-or-rent`: from which month on owning GPUs has cost less than renting what is used."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.output import Column, Output, emit_one, output_option
from phalanx.errors import PhalanxError

COLUMNS = (
    Column("gpus", "GPUS"),
    Column("utilisation"),
    Column("rent_usd_gpu_h", "RENT USD/GPU-H"),
    Column("purchase_usd", "PURCHASE USD"),
    Column("owning_month_usd", "OWNING USD/MONTH"),
    Column("renting_month_usd", "RENTING USD/MONTH"),
    Column("break_even_month", "BREAK-EVEN MONTH"),
    Column("break_even_utilisation", "UTILISATION NEEDED"),
    Column("own_usd", "OWN USD AT END"),
    Column("rent_usd", "RENT USD AT END"),
)


class SummaryError(PhalanxError):
    """A file that is no summary of a simulated run."""


@click.command("own-or-rent")
@click.option("--gpus", type=click.IntRange(1, 10_000_000), required=True, help="GPUs to have.")
@click.option("--gpu", default="H100", show_default=True, help="Accelerator, for its rent in the catalogue.")
@click.option("--utilisation", type=click.FloatRange(0, 1), help="Share of their time for which GPUs are in use.")
@click.option(
    "--run", "summary", metavar="FILE", help="Take the utilisation of a run: what `phalanx simulate -o json` printed."
)
@click.option("--rent-usd", type=float, help="Rent of a GPU-hour. Default: the median of the catalogue, on demand.")
@click.option(
    "--purchase-usd", type=float, required=True, help="Price of a GPU with its part of node, network and room."
)
@click.option(
    "--power-kw", type=float, default=1.3, show_default=True, help="Power of a GPU with its part of the node."
)
@click.option("--pue", type=float, default=1.3, show_default=True, help="Power of the site over that of its machines.")
@click.option("--usd-kwh", type=float, default=0.10, show_default=True, help="Price of a kilowatt-hour.")
@click.option("--staff-usd-year", type=float, default=0.0, show_default=True, help="Staff for it, a year.")
@click.option("--upkeep", type=float, default=0.05, show_default=True, help="Repairs a year, as a share of the price.")
@click.option("--months", type=click.IntRange(1, 240), default=48, show_default=True, help="Months to compare.")
@click.option("--report", metavar="FILE", help="Write the chart as an HTML page.")
@output_option
def own_or_rent(report: str | None, output: Output, **given: Any) -> None:
    """Compare owning GPUs with renting what is used, month by month.

    The utilisation is given, or that of a simulated run of your own trace.
    """
    from phalanx.cli.reliability.design import price_of
    from phalanx.faults.money.own_or_rent import Offer

    offer = Offer(
        given["gpus"],
        _utilisation(given),
        price_of(given["gpu"]) if given["rent_usd"] is None else given["rent_usd"],
        given["purchase_usd"],
        given["power_kw"],
        given["pue"],
        given["usd_kwh"],
        given["staff_usd_year"],
        given["upkeep"],
    )
    months, even = given["months"], offer.break_even_months
    own, rent = offer.after(months)
    needed = offer.break_even_utilisation(months)
    row = {
        "gpus": offer.gpus,
        "utilisation": round(offer.utilisation, 4),
        "rent_usd_gpu_h": round(offer.rent_usd_gpu_h, 4),
        "purchase_usd": round(offer.purchase),
        "owning_month_usd": round(offer.owning_month),
        "renting_month_usd": round(offer.renting_month),
        "break_even_month": None if even is None else round(even, 1),
        "break_even_utilisation": round(needed, 4) if needed <= 1 else None,
        "months": months,
        "own_usd": round(own),
        "rent_usd": round(rent),
    }
    emit_one(row, COLUMNS, output)
    if even is None:
        click.echo("note: owning costs more each month than renting what is used: it never pays", err=True)
    if report is not None:
        from phalanx.cli.cost.charts import own_chart
        from phalanx.cli.reliability.pages import write_page

        overview = f"{offer.gpus:,} GPUs, in use for {offer.utilisation:.0%} of their time."
        write_page(report, "Own or rent", overview, [("cost", "Cost so far", [own_chart(offer, months)])])


def _utilisation(given: dict[str, Any]) -> float:
    if (given["utilisation"] is None) == (given["summary"] is None):
        raise click.UsageError("expected either --utilisation or --run.")
    if given["utilisation"] is not None:
        return float(given["utilisation"])
    import json

    from phalanx.cli.files import text_of

    path = given["summary"]
    try:
        share = json.loads(text_of(path))["gpu_allocated"]
    except (ValueError, TypeError, KeyError):
        share = None
    if not isinstance(share, int | float):
        raise SummaryError(f"{path}: has no gpu_allocated: expected what `phalanx simulate -o json` prints")
    return float(share)
