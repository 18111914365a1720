"""The command-line page of the reference: `python -m phalanx.cli.reference > docs/reference/cli.md`."""

from __future__ import annotations

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


if __name__ == "__main__":
    click.echo(reference(), nl=False)
