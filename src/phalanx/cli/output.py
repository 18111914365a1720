"""How a verb shows data: one table for people, the same rows as JSON or YAML for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypeVar, get_args

import click

from phalanx.cli.fitting import GAP, Fit, cells, cut, fitted, folded, padded, terminal_columns

Output: TypeAlias = Literal["table", "wide", "json", "yaml", "name"]
Row: TypeAlias = Mapping[str, object]
Decorated = TypeVar("Decorated", bound=Callable[..., object])

PROSE_FROM = 24
"""What is longer than this, and has spaces, is prose; a date with its time is shorter, and stays whole."""

PROSE_LEAST = 16
"""Narrower than this, folded prose cannot be read."""

PIPE_COLUMNS = 1_000_000
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


class Column(NamedTuple):
    """One column of a table. Programs get every key of a row, whether or not it has a column."""

    key: str
    header: str = ""
    wide: bool = False
    least: int = 0
    """In a narrow terminal it is cut down to so many characters; 0: never, but prose is folded."""
    tail: bool = False
    """What is cut off is the beginning, as of a path."""
    spare: bool = False
    """In a narrow terminal it is left out, unless the wide table was asked for."""

    words: Mapping[str, str] | None = None
    """What a table calls values that programs know by another name."""

    def text(self, row: Row) -> str:
        """What a table shows of a row."""
        value = row.get(self.key)
        return cell(self.words.get(value, value) if self.words and isinstance(value, str) else value)

    @property
    def title(self) -> str:
        return self.header or self.key.replace("_", " ").upper()


STATE_WORDS = {"waiting": "pending"}
STATE = Column("state", words=STATE_WORDS)
"""The state of a job. The API's `waiting` is what people call pending."""


def output_option(function: Decorated) -> Decorated:
    """Gives a verb `-o table|wide|json|yaml|name`, handed to it as `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(get_args(Output)),
        default="table",
        show_default=True,
        help="Format: table or wide (more columns) to read, json or yaml for programs, name for names only.",
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
            click.echo(_whole(rows, [column._replace(least=0, spare=False) for column in columns]), nl=False)
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
            click.echo(_lines(row, [column for column in columns if output == "wide" or not column.wide]), nl=False)


def emit_parts(rows: Sequence[Row], columns: Sequence[Column], output: Output, naming: int = 1) -> None:
    """Prints rows as `emit` does, but for a table that is too wide: in several, one below another, with all columns.

    For tables of few rows, in which no column may be missing. Each has the first columns, which name the row.
    """
    if output == "table":
        click.echo(as_tables(rows, [column for column in columns if not column.wide], naming), nl=False)
    else:
        emit(rows, columns, output)


def as_json(data: object) -> str:
    import json

    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)


def as_yaml(data: object) -> str:
    import yaml

    return yaml.safe_dump(dict(data) if isinstance(data, dict) else data, sort_keys=False, allow_unicode=True)


def as_table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """A table as wide as the terminal at most. Where that takes it, also columns that are not spare are left out."""
    layout = laid_out(rows, columns, _room())
    if layout is None:
        needed, rest = columns[:1], [column._replace(spare=True) for column in columns[1:] if not column.spare]
        layout = laid_out(rows, [*needed, *rest], _room())
    return _printed(layout) if layout is not None else _by_rows(rows, columns)


def as_tables(rows: Sequence[Row], columns: Sequence[Column], naming: int = 1) -> str:
    """Tables as wide as the terminal at most that together have all columns, and each of them those that name a row."""
    first, room = columns[:naming], _room()
    parts = [[*first]]
    for column in columns[naming:]:
        if len(parts[-1]) > naming and laid_out(rows, [*parts[-1], column], room) is None:
            parts.append([*first])
        parts[-1].append(column)
    layouts = [laid_out(rows, part, room) for part in parts]
    known = [layout for layout in layouts if layout is not None]
    return "\n".join(map(_printed, known)) if len(known) == len(layouts) else _by_rows(rows, columns)


def _whole(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """A table with all there is; where none fits, the lines of each row, one row after another."""
    layout = laid_out(rows, columns, _room())
    return _printed(layout) if layout is not None else _by_rows(rows, columns)


def _by_rows(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    return "\n".join(_lines(row, columns) for row in rows)


class Layout(NamedTuple):
    """A table as it will be: the columns that are shown, how wide each is, whether its values stand to the right, and
    its values, row by row.
    """

    columns: list[Column]
    widths: list[int]
    rights: list[bool]
    rows: list[list[str]]


def laid_out(rows: Sequence[Row], columns: Sequence[Column], room: int) -> Layout | None:
    """A table within so many characters; None if there can be none in which anything could be read."""
    texts = [[column.text(row) for row in rows] for column in columns]
    widths = fitted([_fit(column, values) for column, values in zip(columns, texts, strict=True)], room)
    if widths is None:
        return None
    shown = [each for each in zip(columns, texts, widths, strict=True) if each[2]]
    return Layout(
        [column for column, _, _ in shown],
        [width for _, _, width in shown],
        [are_numbers([row.get(column.key) for row in rows]) for column, _, _ in shown],
        [
            [cut(values[at], width, column.tail) if column.least else values[at] for column, values, width in shown]
            for at in range(len(rows))
        ],
    )


def _printed(layout: Layout) -> str:
    """The lines of a table. No library draws it: to load one would take as long as all else that a verb does."""
    titles = _line([column.title for column in layout.columns], layout)
    lines = [f"{BOLD}{titles}{PLAIN}" if wants_colour() else titles]
    for values in layout.rows:
        parts = [folded(value, width) for value, width in zip(values, layout.widths, strict=True)]
        for at in range(max(map(len, parts))):
            lines.append(_line([part[at] if at < len(part) else "" for part in parts], layout))
    return "".join(f"{line}\n" for line in lines)


def _line(values: Sequence[str], layout: Layout) -> str:
    padded_values = map(padded, values, layout.widths, layout.rights)
    return (" " * GAP).join(padded_values).rstrip()


def _fit(column: Column, values: Sequence[str]) -> Fit:
    """What a column would take and can do with. Words and numbers stay whole; prose is folded between its words."""
    title = len(column.title)
    width = max([title, *map(cells, values)])
    least = max(column.least, title)
    if not column.least:
        least = PROSE_LEAST if any(" " in value and len(value) > PROSE_FROM for value in values) else width
    return Fit(width, min(least, width), column.spare)


def _lines(row: Row, columns: Sequence[Column]) -> str:
    """A line for each column; long ones go on below themselves."""
    indent = max((len(column.title) for column in columns), default=0) + GAP
    room = max(_room() - indent, PROSE_LEAST)
    lines = []
    for column in columns:
        parts = folded(column.text(row) or "-", room)
        lines += [f"{'' if at else column.title:<{indent}}{part}" for at, part in enumerate(parts)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _room() -> int:
    """The width of the terminal. A pipe has none: nothing is folded or cut for a program that reads the table."""
    return terminal_columns() if sys.stdout.isatty() else PIPE_COLUMNS


def say(text: str, err: bool = False, indent: str = "") -> None:
    """Prints sentences, on a terminal folded between words; what goes on below begins with the indent."""
    stream = sys.stderr if err else sys.stdout
    room = terminal_columns() if stream.isatty() else PIPE_COLUMNS
    for line in text.split("\n"):
        click.echo("\n".join(_sentence(line, room, indent)), err=err)


def _sentence(line: str, room: int, indent: str) -> list[str]:
    """The lines that one is folded to; its own blanks at the beginning stay."""
    if cells(line) <= room:
        return [line]
    words = line.lstrip(" ")
    lead = line[: len(line) - len(words)]
    first = folded(words, max(room - len(lead), PROSE_LEAST))[0]
    rest = folded(words[len(first) :].lstrip(" "), max(room - len(indent), PROSE_LEAST))
    return [lead + first, *(indent + part for part in rest)]


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
