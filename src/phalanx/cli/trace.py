"""`phalanx trace`: describes traces, makes synthetic ones, and turns those of others into ours."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.output import Column, Output, emit, emit_one, output_option
from phalanx.simulate.trace import Trace
from phalanx.simulate.traces.describe import describe as description
from phalanx.simulate.traces.formats.columns import write_trace
from phalanx.simulate.traces.load import offered_load, span_ms
from phalanx.simulate.traces.open import read_trace
from phalanx.simulate.traces.shapes import SHAPES
from phalanx.simulate.traces.synthetic import Synthetic, synthesize

SUMMARY_COLUMNS = (
    Column("name"),
    Column("jobs"),
    Column("states"),
    Column("kinds"),
    Column("span"),
    Column("gpu_hours", "GPU HOURS"),
    Column("gpus_offered", "GPUS OFFERED"),
    Column("gpus_max", "LARGEST JOB GPUS"),
    Column("top_1_percent_gpu_time", "GPU TIME OF TOP 1 % OF JOBS"),
    Column("users"),
    Column("models"),
    Column("elastic"),
    Column("shared"),
    Column("deadlines"),
    Column("zero_duration"),
    Column("dropped"),
)
DURATION_COLUMNS = tuple(Column(f"duration_{name}_s", f"{name.upper()} S") for name in ("p50", "p90", "p99", "max"))
SHARE_COLUMNS = (Column("jobs"), Column("job_share", "OF JOBS"), Column("gpu_time_share", "OF GPU TIME"))
SIZE_COLUMNS = (Column("gpus"), *SHARE_COLUMNS, *DURATION_COLUMNS)
QUEUE_COLUMNS = (Column("queue"), *SHARE_COLUMNS, *DURATION_COLUMNS)
SPREAD_COLUMNS = (
    Column("seconds", "SECONDS OF"),
    *(Column(name, name.upper()) for name in ("mean", "p50", "p90", "p95", "p99", "max")),
)
QUEUES_SHOWN_MAX = 15
BAR_WIDTH = 40

skip_bad_rows_option = click.option(
    "--skip-bad-rows", is_flag=True, help="Drop and count rows that cannot be read. Default: stop at the first."
)


def tell_bad_rows(found: Trace) -> None:
    """Names the first of the bad rows that were dropped, and counts them, on standard error."""
    if not found.dropped:
        return
    for row in found.bad_rows:
        click.echo(f"dropped: {row}", err=True)
    more = found.dropped - len(found.bad_rows)
    unnamed = f", {more:,} of them not named here" if more else ""
    rows = "bad row" if found.dropped == 1 else "bad rows"
    verb = "was" if found.dropped == 1 else "were"
    click.echo(f"note: {found.dropped:,} {rows} of {found.name} {verb} dropped{unnamed}", err=True)


@click.group()
def trace() -> None:
    """Describe traces, generate synthetic ones, and convert other formats to phalanx's."""


@trace.command()
@click.argument("file", metavar="FILE")
@skip_bad_rows_option
@output_option
def describe(file: str, skip_bad_rows: bool, output: Output) -> None:
    """Describe the trace FILE: its jobs, their sizes and durations, its queues, and its load over time."""
    read = read_trace(file, skip_bad_rows)
    tell_bad_rows(read)
    found = description(read)
    if output not in ("table", "wide"):
        emit_one(found, SUMMARY_COLUMNS, output)
        return
    emit_one(_summary(found), SUMMARY_COLUMNS, output)
    for note in found["notes"]:
        click.echo(f"note: {note}")
    if not found["jobs"]:
        return
    spreads = [{"seconds": name, **found[f"{name}_s"]} for name in ("duration", "gpu_time")]
    for rows, columns in ((spreads, SPREAD_COLUMNS), (found["sizes"], SIZE_COLUMNS)):
        click.echo()
        emit(_rounded(rows), columns, output)
    _show_queues(found["queues"], output)
    _show_load(found["load"])


def _summary(found: dict[str, Any]) -> dict[str, Any]:
    return found | {
        "span": time_words(found["span_s"]),
        "states": _list(found["states"]),
        "kinds": _list(found["kinds"]),
    }


def _list(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in counts.items()) or "-"


def _rounded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as people read them: whole seconds, shares with four digits."""
    return [{key: _round(key, value) for key, value in row.items()} for row in rows]


def _round(key: str, value: object) -> object:
    if not isinstance(value, float):
        return value
    return round(value, 4) if key.endswith("share") else round(value)


def _show_queues(queues: list[dict[str, Any]], output: Output) -> None:
    click.echo()
    emit(_rounded(queues[:QUEUES_SHOWN_MAX]), QUEUE_COLUMNS, output)
    if len(queues) > QUEUES_SHOWN_MAX:
        click.echo(f"… and {len(queues) - QUEUES_SHOWN_MAX} more queues")


def _show_load(load: dict[str, Any]) -> None:
    """A bar for each stretch of time, the longest for the most GPUs."""
    width = time_words(load["bucket_s"])
    click.echo(f"\nGPUs that would be busy if no job waited, in steps of {width} from the first submission")
    most = max(bucket["gpus"] for bucket in load["buckets"])
    for bucket in load["buckets"]:
        bar = "#" * round(BAR_WIDTH * bucket["gpus"] / most) if most else ""
        at = time_words(bucket["at_s"])
        click.echo(f"{at:>10}  {bar:<{BAR_WIDTH}}  {bucket['gpus']:.1f} GPUs, {bucket['jobs']} jobs submitted")


def time_words(seconds: float) -> str:
    """A time in at most two units: 3d 4h, 12m 30s, 0.5s."""
    units = (("d", 86_400), ("h", 3600), ("m", 60))
    for i, (unit, length) in enumerate(units):
        if seconds >= length:
            whole, rest = divmod(round(seconds), length)
            below, step = (*units, ("s", 1))[i + 1]
            return f"{whole}{unit} {rest // step}{below}" if rest // step else f"{whole}{unit}"
    return f"{seconds:g}s"


@trace.command()
@click.argument("out", metavar="OUT")
@click.option("--jobs", type=int, required=True, help="Number of jobs.")
@click.option(
    "--gpus", type=int, required=True, help="Number of GPUs of the cluster that --load refers to; no job requests more."
)
@click.option(
    "--load", type=float, required=True, help="Offered load: requested GPU time divided by available GPU time."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed; equal seeds give equal traces.")
@click.option(
    "--shape",
    type=click.Choice(list(SHAPES)),
    default="philly",
    show_default=True,
    help="Workload that job sizes and durations are modelled on.",
)
@click.option("--queues", type=int, default=8, show_default=True, help="Number of queues; the first is the largest.")
@click.option("--users-per-queue", type=int, default=8, show_default=True, help="Number of users of each queue.")
@click.option(
    "--sweeps",
    type=float,
    default=0.0,
    metavar="SHARE",
    help="Share of jobs that belong to sweeps, 0 to 1. Default: 0.",
)
@click.option(
    "--failed", type=float, metavar="SHARE", help="Share of jobs that fail, 0 to 1. Default: that of --shape."
)
@click.option(
    "--cancelled",
    type=float,
    metavar="SHARE",
    help="Share of jobs that are cancelled, 0 to 1. Default: that of --shape.",
)
@click.option("--services", type=int, default=0, help="Number of jobs that are services, which never end. Default: 0.")
@click.option(
    "--elastic", type=float, default=0.0, metavar="SHARE", help="Share of jobs that are elastic, 0 to 1. Default: 0."
)
@click.option(
    "--deadlines", type=float, default=0.0, metavar="SHARE", help="Share of jobs with a deadline, 0 to 1. Default: 0."
)
def make(out: str, seed: int, **spec: Any) -> None:
    """Generate a synthetic trace with exactly the given offered load.

    OUT is CSV, or Parquet if its name ends in .parquet.
    """
    made = synthesize(Synthetic(**spec), seed)
    write_trace(made, out)
    span = time_words(span_ms(made) / 1000)
    load = offered_load(made, spec["gpus"])
    click.echo(f"{out}: {len(made.jobs)} jobs over {span}, a load of {load:.6g} on {spec['gpus']} GPUs", err=True)


@trace.command()
@click.argument("file", metavar="IN")
@click.argument("out", metavar="OUT")
@skip_bad_rows_option
def convert(file: str, out: str, skip_bad_rows: bool) -> None:
    """Convert the trace IN, of any supported format, to phalanx's own columns.

    OUT is CSV, or Parquet if its name ends in .parquet.
    """
    found = read_trace(file, skip_bad_rows)
    write_trace(found, out)
    _tell(found, out)


def _tell(found: Trace, out: str) -> None:
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    tell_bad_rows(found)
    click.echo(f"{out}: {len(found.jobs)} jobs", err=True)
