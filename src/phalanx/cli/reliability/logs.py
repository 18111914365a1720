"""`phalanx reliability fit` and `draw`: rates from a log of failures, and failures from rates."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.reliability.options import SECONDS

FIT_COLUMNS = (
    Column("distribution"),
    Column("per_1000_node_days", "PER 1,000 NODE-DAYS"),
    Column("interval", "95 %"),
    Column("mtbf_h", "MTBF H"),
    Column("shape"),
    Column("aic", "AIC"),
    Column("distance"),
    Column("p_value", "P"),
    Column("better"),
)
LEMON_CHANCE = 0.001


@click.command()
@click.argument("file", metavar="FILE")
@click.option(
    "--nodes",
    type=click.IntRange(0, 10_000_000),
    default=0,
    help="Nodes that were watched. Default: those that failed.",
)
@click.option(
    "--until",
    type=SECONDS,
    default="0s",
    metavar="TIME",
    help="How long they were watched. Default: to the last failure.",
)
@output_option
def fit(file: str, nodes: int, until: float, output: Output) -> None:
    """Fit failure rates to a log: a CSV with the columns at_s (seconds since the start) and node.

    Nodes that were well when the log ended count with the time that they ran. A small P means that the distribution
    does not explain the log.
    """
    from phalanx.cli.files import text_of
    from phalanx.faults.fit.fitted import Fitted, surplus_chance
    from phalanx.faults.fit.fitted import fit as fit_log
    from phalanx.faults.fit.log import read_log

    log = read_log(text_of(file), file, nodes, until)
    found = fit_log(log)

    def row(each: Fitted) -> dict[str, Any]:
        simple = each is found.exponential
        bounds = f"{found.low_per_hour * 24_000:.3g} to {found.high_per_hour * 24_000:.3g}" if simple else None
        return {
            "distribution": each.name,
            "per_1000_node_days": float(f"{24_000 / each.mean_hours:.4g}"),
            "interval": bounds,
            "mtbf_h": round(each.mean_hours, 2),
            "shape": round(each.shape, 4),
            "aic": round(each.aic, 2),
            "distance": round(each.distance, 4),
            "p_value": round(each.p_value, 4),
            "better": each is found.better,
        }

    emit([row(each) for each in (found.exponential, found.weibull)], FIT_COLUMNS, output)
    for note in log.notes:
        click.echo(f"note: {note}", err=True)
    expected = log.failures / log.nodes
    for node, count in log.by_node.items():
        # Among many nodes, some have more failures by chance alone.
        chance = surplus_chance(count, expected) * log.nodes
        if chance < LEMON_CHANCE * log.nodes and chance < 0.05:
            told = f"failed {count} times where {expected:.2g} are expected (chance {chance:.2g} among all nodes)"
            click.echo(f"note: node {node} {told}", err=True)


@click.command()
@click.argument("plan", metavar="NAME[:key=value,…]")
@click.option("--cluster", metavar="FILE", required=True, help="The cluster file whose nodes fail.")
@click.option("--days", type=click.FloatRange(0, 36_500), required=True, help="Days to draw failures for.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed: the same one gives the same failures.")
def draw(plan: str, cluster: str, days: float, seed: int) -> None:
    """Draw failures at random and print them as a CSV for `phalanx simulate --faults`."""
    from phalanx.faults.generate.draw import Site
    from phalanx.faults.generate.draw import draw as draw_all
    from phalanx.faults.generate.file import as_csv
    from phalanx.faults.generate.plan import DAY_MS, plan_of
    from phalanx.simulate.traces.open import read_trace_cluster

    wanted = plan_of(plan)
    site = Site.of(read_trace_cluster(cluster), wanted.level)
    click.echo(as_csv(draw_all(wanted, site, int(days * DAY_MS), seed)), nl=False)
