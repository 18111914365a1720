"""`phalanx policies`: what each policy knows, decides by and costs, side by side."""

from __future__ import annotations

from dataclasses import asdict

import click

from phalanx.cli.exit import Exit
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.errors import PhalanxError
from phalanx.policy.parameters import Parameter
from phalanx.policy.registry import described, is_file, known, split
from phalanx.simulate.plugins import load_entry_point, load_entry_points, load_policy_file

COLUMNS = (
    Column("name"),
    Column("prior_knowledge"),
    Column("algorithm"),
    Column("decides_by", "INPUT"),
    Column("dimensions"),
    Column("preemption"),
    Column("starvation"),
    Column("placement"),
    Column("summary", wide=True),
    Column("source", wide=True),
    Column("parameters", wide=True),
)

COMPARED = tuple(column for column in COLUMNS if not column.wide)


class NoSuchPolicy(PhalanxError):  # noqa: N818
    """A policy that is neither built in nor offered by an installed package."""

    exit_code = Exit.NOT_FOUND


@click.command()
@click.argument("names", nargs=-1, metavar="[POLICY]...")
@output_option
def policies(names: tuple[str, ...], output: Output) -> None:
    """Compare all policies, or those given: NAME, or your own as ./FILE.py:NAME."""
    if names:
        chosen = [_found(name) for name in names]
    else:
        load_entry_points()
        chosen = list(known())
    for_programs = output in ("json", "yaml")
    rows = [_row(name, for_programs) for name in chosen]
    if output == "table":
        # A comparison without some of its columns would be none: what a narrow terminal has no room for is folded.
        emit(rows, COMPARED, "wide")
    else:
        emit(rows, COLUMNS, output)


def _found(spec: str) -> str:
    """The name of a policy, which is loaded if it is not built in. Parameters do not matter here."""
    if is_file(spec):
        return load_policy_file(spec)
    name, _ = split(spec)
    if name not in known():
        load_entry_point(name)
    if name not in known():
        raise NoSuchPolicy(f"there is no policy {name!r} (known: {', '.join(known())})")
    return name


def _row(name: str, for_programs: bool) -> dict[str, object]:
    about, parameters = described(name)
    told = [each._asdict() for each in parameters] if for_programs else [_written(each) for each in parameters]
    return {"name": name, **asdict(about), "parameters": told}


def _written(parameter: Parameter) -> str:
    return f"{parameter.name}={'…' if parameter.default is None else parameter.default}"
