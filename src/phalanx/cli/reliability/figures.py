"""`phalanx reliability mttf`, `ettr`, `intervals`, `tornado` and `published`: the figures of a job that fails."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.reliability.options import course_of, course_options, fleet_of, node_option, profile_option

SIZES = (8, 64, 512, 1_024, 4_096, 10_000, 16_384, 32_768, 100_000, 131_072)

MTTF_COLUMNS = (
    Column("gpus", "GPUS"),
    Column("nodes"),
    Column("failures_per_day", "FAILURES A DAY"),
    Column("mttf_h", "MTTF H"),
)
ETTR_COLUMNS = (
    Column("way"),
    Column("ettr", "ETTR"),
    Column("save"),
    Column("redo"),
    Column("detect"),
    Column("queue"),
    Column("restart"),
    Column("reload"),
)
INTERVAL_COLUMNS = (
    Column("rule"),
    Column("interval_s", "INTERVAL S"),
    Column("ettr", "ETTR"),
    Column("off", "OFF BEST"),
)
TORNADO_COLUMNS = (
    Column("figure"),
    Column("value"),
    Column("halved", "ETTR HALVED"),
    Column("doubled", "ETTR DOUBLED"),
    Column("swing"),
)
PUBLISHED_COLUMNS = (Column("what"), Column("printed"), Column("model"), Column("off"), Column("unit"), Column("note"))

failures_option = click.option(
    "--failures",
    type=click.IntRange(1, 5_000_000),
    default=50_000,
    show_default=True,
    help="Failures to simulate; with more, the result is closer to the truth.",
)
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="Seed of the simulation.")


@click.command()
@click.option("--gpus", multiple=True, type=click.IntRange(1, 10_000_000), help="A size; may be repeated.")
@profile_option
@node_option
@output_option
def mttf(gpus: tuple[int, ...], profile: str, gpus_per_node: int, output: Output) -> None:
    """Show the mean time to failure of jobs of several sizes."""
    from phalanx.faults.taxonomy.choose import profile_of

    found = profile_of(profile)
    rows = []
    for size in gpus or SIZES:
        fleet = fleet_of(size, gpus_per_node)
        per_day, hours = found.per_hour(fleet) * 24, found.mttf_hours(fleet)
        rows.append(
            {"gpus": size, "nodes": fleet.nodes, "failures_per_day": round(per_day, 4), "mttf_h": round(hours, 4)}
        )
    emit(rows, MTTF_COLUMNS, output)


@click.command()
@course_options
@click.option(
    "--shape",
    type=click.FloatRange(0.1, 20),
    default=1.0,
    show_default=True,
    help="Weibull shape of the simulated gaps.",
)
@failures_option
@seed_option
@output_option
def ettr(shape: float, failures: int, seed: int, output: Output, **given: Any) -> None:
    """Calculate the effective training time ratio by formula and by simulation, with where the rest of the time goes.

    The formula of first order is that of Meta's study. The exact one and the simulation agree where failures are
    exponential, which is a shape of 1.
    """
    from phalanx.faults.reliability.ettr import exact_split, published_ettr
    from phalanx.faults.reliability.monte_carlo import exponential, simulated, weibull

    _, _, course = course_of(given)
    gaps = exponential(course) if shape == 1 else weibull(course, shape)
    booked = simulated(course, failures, seed, gaps)
    rows: list[dict[str, object]] = [{"way": "first order", "ettr": round(published_ettr(course), 4)}]
    for way, split in (("exact", exact_split(course)), (f"simulated, {booked.failures:,} failures", booked.split)):
        parts = {name: round(share, 4) for name, share in split.parts.items()}
        rows.append({"way": way, "ettr": parts.pop("work"), **parts})
    emit(rows, ETTR_COLUMNS, output)
    if output in ("table", "wide"):
        click.echo(f"\nMTTF {course.mttf_s / 3600:.4g} h, a checkpoint every {course.interval_s:.4g} s of work")


@click.command()
@course_options
@output_option
def intervals(output: Output, **given: Any) -> None:
    """Compare rules for the interval between checkpoints with the best one, found by search."""
    from phalanx.faults.reliability.ettr import exact_ettr
    from phalanx.faults.reliability.intervals import (
        availability_optimal_s,
        best_of,
        daly_first_s,
        daly_s,
        exact_s,
        young_s,
    )

    if not given["save_s"]:
        raise click.UsageError("--save is 0: saves that are free have no best interval.")
    _, _, course = course_of(given)
    save_s, mean_s = course.save_s, course.mttf_s
    searched = best_of(lambda each: exact_ettr(course.every(each)), save_s / 1000, mean_s * 20)
    rules = {
        "Young": young_s(save_s, mean_s),
        "Daly, first order": daly_first_s(save_s, mean_s),
        "Daly, higher order": daly_s(save_s, mean_s),
        "availability-optimal": availability_optimal_s(save_s, mean_s, course.down_s + course.up_s),
        "exact": exact_s(save_s, mean_s),
        "search": searched,
    }
    if given["every"] is not None:
        rules["as given"] = given["every"]
    rows = [
        {
            "rule": rule,
            "interval_s": round(interval_s, 2),
            "ettr": round(exact_ettr(course.every(interval_s)), 6),
            "off": f"{interval_s / searched - 1:+.1%}",
        }
        for rule, interval_s in rules.items()
    ]
    emit(rows, INTERVAL_COLUMNS, output)


@click.command()
@course_options
@click.option("--report", metavar="FILE", help="Write the chart as an HTML page.")
@output_option
def tornado(report: str | None, output: Output, **given: Any) -> None:
    """Show which figure buys most: the ratio with each halved and doubled, the others left as they are."""
    from phalanx.faults.reliability.tornado import tornado as bars_of

    profile, fleet, course = course_of(given)
    bars = bars_of(course)
    rows = [
        {
            "figure": bar.figure,
            "value": float(f"{bar.value:.4g}"),
            "halved": round(bar.halved, 4),
            "doubled": round(bar.doubled, 4),
            "swing": round(bar.swing, 4),
        }
        for bar in bars
    ]
    emit(rows, TORNADO_COLUMNS, output)
    if report is not None:
        from phalanx.cli.reliability.charts import tornado_chart
        from phalanx.cli.reliability.pages import write_page
        from phalanx.faults.reliability.ettr import exact_ettr

        title = f"What buys most on {fleet.gpus:,} GPUs"
        write_page(
            report,
            title,
            f"Failures as in {profile.name}.",
            [("tornado", "Tornado", [tornado_chart(bars, exact_ettr(course))])],
        )


@click.command()
@failures_option
@output_option
def published(failures: int, output: Output) -> None:
    """Compare what Meta's study printed with the model, and say where they differ."""
    from phalanx.faults.reliability.published import compared

    rows = [
        {
            "what": each.what,
            "printed": round(each.printed, 4),
            "model": round(each.model, 4),
            "off": f"{each.off:+.1%}",
            "unit": each.unit or None,
            "note": each.note,
        }
        for each in compared(failures)
    ]
    emit(rows, PUBLISHED_COLUMNS, output)
