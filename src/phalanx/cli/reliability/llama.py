"""`phalanx reliability llama-3`: the failures of that training under four strategies."""

from __future__ import annotations

import click

from phalanx.cli.output import Column, Output, emit, output_option

COLUMNS = (
    Column("strategy"),
    Column("closed", "ETTR BY FORMULA"),
    Column("replayed", "ETTR REPLAYED"),
    Column("range"),
    Column("days", "USEFUL DAYS OF 54"),
    Column("intervals"),
    Column("about", wide=True),
)


@click.command("llama-3")
@click.option("--seeds", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Replays to average over.")
@click.option("--report", metavar="FILE", help="Write the charts as an HTML page.")
@output_option
def llama_3(seeds: int, report: str | None, output: Output) -> None:
    """Replay the 419 interruptions of Llama 3 405B (16,384 GPUs, 54 days) under four strategies.

    The counts by component are published; when each happened is not, so the moments are random.
    """
    from phalanx.faults.reliability.replay import replay_llama

    found = replay_llama(seeds=seeds)
    rows = [
        {
            "strategy": each.strategy.name,
            "closed": round(each.closed, 4),
            "replayed": round(each.replayed, 4),
            "range": f"{each.low:.4f} to {each.high:.4f}",
            "days": round(each.days, 2),
            "intervals": [f"{tier.name} {tier.interval_s:.0f} s" for tier in each.strategy.tiers],
            "about": each.strategy.about,
        }
        for each in found
    ]
    emit(rows, COLUMNS, output)
    if report is not None:
        from phalanx.cli.reliability.charts import replay_chart
        from phalanx.cli.reliability.pages import write_page

        overview = "419 interruptions in 54 days on 16,384 GPUs, by the published counts of each component."
        write_page(report, "Llama 3's failures, replayed", overview, [("replay", "Strategies", [replay_chart(found)])])
