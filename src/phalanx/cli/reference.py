"""The command-line page of the reference: `python -m phalanx.cli.reference cli > docs/reference/cli.md`."""

from __future__ import annotations

import sys
from enum import StrEnum
from types import FunctionType
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
A table is as wide as the terminal at most: names and queues are cut short, and what is missed least is left out.
`wide` does neither, and tells row by row what fits in no table. In a pipe nothing is cut.
Standard output is data only; progress and errors go to standard error. There is no
colour in a pipe or with `NO_COLOR` set.

## Exit codes

| code | means |
| --- | --- |
{codes}"""


def records() -> str:
    """The page of what the journal can hold, from the types themselves."""
    from phalanx.engine.state import records
    from phalanx.protocol import action, event, reason

    return f"""\
# Records, reasons and states

A journal is a line of JSON per record: `seq`, `now` (milliseconds), `version`, and a `body` whose `type` names it. A
body is an event or a Decision. Fields that have their default are left out.

## Events

{_types(get_args(event.Event))}
## Actions in a Decision

{_types(get_args(action.Action))}
## Reasons why a job waits

From the most lasting to the most passing. `why` and `plan` give the first that holds when they are asked. A Decision
says what was found when the job was last looked at, and so do lists of jobs: others may have taken what was free since.

{_values(reason.Reason)}
## Job states

{_values(records.JobState)}
## Phases of an attempt

{_values(records.Phase)}"""


def _types(types: tuple[type, ...]) -> str:
    return "".join(f"- `{each.__name__}`: {(each.__doc__ or '').strip().splitlines()[0]}\n" for each in types)


def _values(values: type[StrEnum]) -> str:
    return ", ".join(f"`{value}`" for value in values) + "\n"


def client_verbs() -> str:
    """The page of the verbs that talk to a server, with every argument and option, from the commands themselves."""
    verbs = "\n".join(_verb(name) for name in CLIENT_VERBS)
    return f"""\
# Verbs that talk to a server

How they find it is told in [Servers and tokens](client.md). `ID` is the id of a job, or a name that only one job has.
`cancel`, `hold`, `release`, `wait` and `job` also take the id or name of an array, and mean all its members.

{verbs}"""


def _verb(name: str) -> str:
    command = VERBS[name].load()
    parts = [f"## `{name}`\n", f"{_sentence(command)}\n"]
    with click.Context(command, info_name=f"phalanx {name}") as ctx:
        parts.append(f"    phalanx {name} {' '.join(command.collect_usage_pieces(ctx))}\n")
        parts.append(_options(command, ctx))
        if isinstance(command, click.Group):
            parts += [_subcommand(name, command.commands[each]) for each in sorted(command.commands)]
    return "\n".join(part for part in parts if part)


def _subcommand(group: str, command: click.Command) -> str:
    with click.Context(command, info_name=command.name) as ctx:
        usage = " ".join(command.collect_usage_pieces(ctx))
        listed = _options(command, ctx)
    return f"`phalanx {group} {command.name} {usage}`: {_sentence(command)}\n" + (f"\n{listed}" if listed else "")


def _sentence(command: click.Command) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _options(command: click.Command, ctx: click.Context) -> str:
    records = [parameter.get_help_record(ctx) for parameter in command.params if isinstance(parameter, click.Option)]
    rows = [f"| `{_cell(names)}` | {_cell(text)} |\n" for names, text in filter(None, records)]
    return "| option | does |\n| --- | --- |\n" + "".join(rows) if rows else ""


CLIENT_VERBS = (
    "alerts",
    "apply",
    "attach",
    "audit",
    "backends",
    "cancel",
    "completion",
    "config",
    "debug",
    "drain",
    "events",
    "exec",
    "forward",
    "history",
    "hold",
    "job",
    "jobs",
    "login",
    "logs",
    "nodes",
    "postmortem",
    "queues",
    "release",
    "requeue",
    "reservations",
    "resize",
    "resume",
    "run",
    "save",
    "secrets",
    "submit",
    "suspend",
    "tokens",
    "top",
    "undrain",
    "update",
    "usage",
    "users",
    "wait",
    "when",
    "whoami",
)


def policy_view() -> str:
    """The page of what a policy sees, from the types themselves."""
    from phalanx.policy import view

    parts = "".join(
        f"## `{kind.__name__}`\n\n{_doc(kind)}\n\n| field | type | what it is |\n| --- | --- | --- |\n{_fields(kind)}\n"
        for kind in (view.Moment, view.JobView, view.RunView, view.Usage, view.NodeView)
    )
    return (
        f"""\
# What a policy sees

The functions of a [policy](policies.md) are given these. Times are milliseconds. All is read-only, but for `marks`.

{parts}""".rstrip()
        + "\n"
    )


def _doc(kind: object) -> str:
    return " ".join((kind.__doc__ or "").split())


def _fields(kind: type) -> str:
    """A row for each property, method or field, in the order of the source."""
    rows = []
    for name, member in vars(kind).items():
        function = member.fget if isinstance(member, property) else member
        if name.startswith("_") or not isinstance(function, FunctionType):
            continue
        hints = dict(function.__annotations__)
        returned = str(hints.pop("return")).replace("|", "\\|")
        given = "" if isinstance(member, property) else f"({', '.join(hints)})"
        rows.append(f"| `{name}{given}` | `{returned}` | {_doc(function)} |\n")
    annotated = getattr(kind, "_fields", ())
    rows += [f"| `{name}` | `{getattr(kind.__annotations__[name], '__forward_arg__', '')}` | |\n" for name in annotated]
    return "".join(rows)


PAGES = {"policy-view": policy_view, "cli": reference, "client-verbs": client_verbs, "records": records}

if __name__ == "__main__":
    click.echo(PAGES[sys.argv[1]](), nl=False)
