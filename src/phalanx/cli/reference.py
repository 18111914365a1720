"""The command-line page of the reference: `python -m phalanx.cli.reference cli > docs/reference/cli.md`."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import get_args

import click

from phalanx.cli.exit import MEANING
from phalanx.cli.main import VERBS
from phalanx.cli.output import Output


def reference() -> str:
    verbs = "".join(f"| `{name}` | {verb.summary} |\n" for name, verb in sorted(VERBS.items()))
    codes = "".join(f"| {code.value} | {meaning} |\n" for code, meaning in MEANING.items())
    formats = "`, `".join(get_args(Output))
    return f"""\
# The command line

`phalanx VERB --help` describes a verb with its options. `python -m phalanx` is the same program.

| verb | does |
| --- | --- |
{verbs}
## Output

Verbs that read take `-o` with one of `{formats}`. Lists are JSON arrays of objects.
Standard output is data only; progress and errors go to standard error. There is no
colour in a pipe or with `NO_COLOR` set.

## Exit codes

| code | means |
| --- | --- |
{codes}"""


def records() -> str:
    """The page of what the journal can hold, from the types themselves."""
    from phalanx.engine import action, event, plan, records

    return f"""\
# Records, reasons and states

A journal is a line of JSON per record: `seq`, `now` (milliseconds), `version`, and a `body` whose `type` names it. A
body is an event or a Decision. Fields that have their default are left out.

## Events

{_types(get_args(event.Event))}
## Actions in a Decision

{_types(get_args(action.Action))}
## Reasons why a job waits

From the most lasting to the most passing; the first that holds is the one given.

{_values(plan.Reason)}
## Job states

{_values(records.JobState)}
## Phases of an attempt

{_values(records.Phase)}"""


def _types(types: tuple[type, ...]) -> str:
    return "".join(f"- `{each.__name__}`: {(each.__doc__ or '').strip().splitlines()[0]}\n" for each in types)


def _values(values: type[StrEnum]) -> str:
    return ", ".join(f"`{value}`" for value in values) + "\n"


PAGES = {"cli": reference, "records": records}

if __name__ == "__main__":
    click.echo(PAGES[sys.argv[1]](), nl=False)
