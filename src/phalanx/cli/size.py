"""`phalanx size`: how many GPUs a service needs for a load and a latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.exit import Exit
from phalanx.cli.output import Column, Output, emit, output_option

if TYPE_CHECKING:
    from phalanx.sizing.size import Size, Wish

COLUMNS = (
    Column("gpus_each", "GPUS EACH"),
    Column("concurrency"),
    Column("replicas"),
    Column("gpus"),
    Column("utilisation"),
    Column("mean_s", "MEAN S"),
    Column("latency_s", "LATENCY S"),
    Column("simulated_s", "SIMULATED S"),
    Column("constant_s", "CONSTANT S", wide=True),
    Column("target", "REQUESTS/S EACH"),
)


@click.command()
@click.argument("curve", metavar="FILE")
@click.option("--rate", type=click.FloatRange(0, 1e9), required=True, help="Peak load in requests per second.")
@click.option("--latency", required=True, metavar="TIME", help="Target latency of a request: 800ms, 2s.")
@click.option(
    "--quantile",
    type=click.FloatRange(0, 1),
    default=0.95,
    show_default=True,
    help="Share of requests that must meet --latency, between 0 and 1.",
)
@click.option(
    "--simulate",
    "requests",
    type=click.IntRange(0, 10_000_000),
    default=200_000,
    show_default=True,
    metavar="N",
    help="Check the smallest sizes with N simulated requests; 0: no check.",
)
@output_option
def size(curve: str, rate: float, latency: str, quantile: float, requests: int, output: Output) -> int:
    """Calculate how many GPUs a service needs, from the measured throughput of one replica.

    FILE is a CSV with the columns gpus (1 if left out), concurrency and requests_per_s. The fewest GPUs come first.
    """
    from phalanx.cli.files import text_of
    from phalanx.document.units import duration_ms
    from phalanx.sizing.curve import read_curve
    from phalanx.sizing.size import Wish, sizes

    # Written so that NaN, which fails every comparison, is refused too.
    if not rate > 0:
        raise click.UsageError(f"--rate {rate}: expected a number above 0.")
    if not 0 < quantile < 1:
        raise click.UsageError(f"--quantile {quantile}: expected a number between 0 and 1.")
    latency_ms = duration_ms(latency)
    if not latency_ms:
        raise click.UsageError(f"--latency {latency}: expected a duration above 0 such as 800ms or 2s.")
    wish = Wish(rate, latency_ms / 1000, quantile)
    found = sizes(read_curve(text_of(curve), curve), wish)
    best = found[0].gpus
    rows = [_row(each, wish, requests if each.gpus == best else 0) for each in found]
    emit(rows, COLUMNS, output)
    if best is None:
        told = f"no size answers {quantile:.4g} of the requests within {latency}: by itself one takes longer"
        click.echo(f"phalanx: {told}", err=True)
        return Exit.REFUSED
    return Exit.OK


def _row(size: Size, wish: Wish, requests: int) -> dict[str, Any]:
    from phalanx.sizing.simulation import simulated_s

    row: dict[str, Any] = {
        "gpus_each": size.point.gpus,
        "concurrency": size.point.concurrency,
        "service_s": round(size.point.service_s, 6),
        "replicas": size.replicas,
        "gpus": size.gpus,
    }
    keys = ("utilisation", "mean_s", "latency_s", "simulated_s", "constant_s", "target")
    if size.replicas is None:
        return row | dict.fromkeys(keys)
    queue, check = size.queue, requests > 0
    values = (
        queue.utilisation,
        queue.mean_s,
        queue.quantile_s(wish.quantile),
        simulated_s(queue, wish.quantile, requests) if check else None,
        simulated_s(queue, wish.quantile, requests, constant=True) if check else None,
        wish.requests_per_s / size.replicas,
    )
    return row | {key: round(value, 4) if value is not None else None for key, value in zip(keys, values, strict=True)}
