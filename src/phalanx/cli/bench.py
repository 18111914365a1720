"""`phalanx bench`: runs a benchmark and prints what it measured beside its targets."""

from __future__ import annotations

from collections.abc import Iterable

import click

from phalanx.bench.registry import BENCHMARKS, Part
from phalanx.cli.exit import Exit
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.errors import PhalanxError

NAME_COLUMNS = (Column("name"), Column("part"), Column("measures"))
ROW_COLUMNS = (Column("name"), Column("value"), Column("unit"), Column("target"), Column("met"))


class UnknownBenchmarkError(PhalanxError):
    """Nothing of that name can be measured."""

    exit_code = Exit.NOT_FOUND


@click.command()
@click.argument("name", required=False)
@click.option(
    "--only",
    metavar="PART",
    multiple=True,
    help="Run only this part of the benchmark; repeatable. Default: all, except parts that run only when named.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Run at a small size to check that the benchmark works; its figures are not meaningful.",
)
@output_option
def bench(name: str | None, only: tuple[str, ...], quick: bool, output: Output) -> None:
    """Run the benchmark NAME and print its results beside their targets; without NAME, list the benchmarks.

    A target is the largest value that is allowed.
    """
    if name is None:
        emit(
            [{"name": each, "part": key, "measures": part.summary} for each, key, part in all_parts()],
            NAME_COLUMNS,
            output,
        )
        return
    rows = [row for part in parts_of(name, only) for row in part.run(quick, tell)]
    emit(rows, ROW_COLUMNS, output)


def all_parts() -> Iterable[tuple[str, str, Part]]:
    return ((name, key, part) for name, parts in BENCHMARKS.items() for key, part in parts.items())


def parts_of(name: str, only: tuple[str, ...]) -> list[Part]:
    """The parts asked for, in the order of the benchmark; if none is named, all but those that must be."""
    if name not in BENCHMARKS:
        raise UnknownBenchmarkError(f"there is no benchmark {name!r} (there is: {', '.join(BENCHMARKS)})")
    parts = BENCHMARKS[name]
    for key in only:
        if key not in parts:
            raise UnknownBenchmarkError(f"benchmark {name} has no part {key!r} (it has: {', '.join(parts)})")
    return [part for key, part in parts.items() if key in only or not (only or part.when_named)]


def tell(line: str) -> None:
    click.echo(line, err=True)
