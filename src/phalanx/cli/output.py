"""How a verb shows data: one table for people, the same rows as JSON or YAML for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar, get_args

import click

Output: TypeAlias = Literal["table", "wide", "json", "yaml", "name"]
Row: TypeAlias = Mapping[str, object]
Decorated = TypeVar("Decorated", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table. Programs get every key of a row, whether or not it has a column."""

    key: str
    header: str = ""
    wide: bool = False

    @property
    def title(self) -> str:
        return self.header or self.key.replace("_", " ").upper()


def output_option(function: Decorated) -> Decorated:
    """Gives a verb `-o table|wide|json|yaml|name`, handed to it as `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(get_args(Output)),
        default="table",
        show_default=True,
        help="How to print: for people (wide has more columns), for programs, or names only.",
    )(function)


def emit(rows: Sequence[Row], columns: Sequence[Column], output: Output) -> None:
    """Prints rows of plain data (what JSON knows). `name` prints the first column, one value a line."""
    match output:
        case "json":
            click.echo(as_json([dict(row) for row in rows]))
        case "yaml":
            click.echo(as_yaml([dict(row) for row in rows]), nl=False)
        case "name":
            for row in rows:
                click.echo(cell(row[columns[0].key]))
        case "wide":
            click.echo(as_table(rows, columns), nl=False)
        case "table":
            click.echo(as_table(rows, [column for column in columns if not column.wide]), nl=False)


def emit_one(row: Row, columns: Sequence[Column], output: Output) -> None:
    """Prints one thing: an object for programs, a line for each of its columns for people."""
    match output:
        case "json":
            click.echo(as_json(dict(row)))
        case "yaml":
            click.echo(as_yaml(dict(row)), nl=False)
        case "name":
            emit([row], columns, "name")
        case "wide" | "table":
            shown = [column for column in columns if output == "wide" or not column.wide]
            width = max((len(column.title) for column in shown), default=0)
            for column in shown:
                click.echo(f"{column.title:<{width}}  {cell(row.get(column.key))}")


def as_json(data: object) -> str:
    import json

    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)


def as_yaml(data: object) -> str:
    import yaml

    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def as_table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        values = [row.get(column.key) for row in rows]
        table.add_column(column.title, justify="right" if are_numbers(values) else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(row.get(column.key))) for column in columns))

    colour = wants_colour()
    # A pipe has no width: nothing is folded or cut for a program that reads the table.
    width = None if sys.stdout.isatty() else sys.maxsize
    console = Console(force_terminal=colour, color_system="auto" if colour else None, width=width)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def wants_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def are_numbers(values: Sequence[object]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(type(value) in (int, float) for value in known)


def cell(value: object) -> str:
    """The text of one value. Control characters are spelled out: no job's name may steer a terminal."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case list() | tuple():
            return ",".join(cell(part) for part in value)
        case _:
            text = str(value)
            return text if text.isprintable() else "".join(map(spell_out, text))


def spell_out(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
