"""What the verbs that change jobs have in common: one after another, and what became of each."""

from __future__ import annotations

from collections.abc import Sequence

import click

from phalanx.cli.client import connect, job_path
from phalanx.cli.exit import Exit
from phalanx.cli.job_rows import COLUMNS, job_row
from phalanx.cli.output import Output, emit
from phalanx.errors import PhalanxError


def change_jobs(jobs: Sequence[str], verb: str, output: Output, body: object = None) -> int:
    """Changes jobs; those that cannot be are named, and the rest is changed all the same."""
    client = connect()
    rows, code = [], int(Exit.OK)
    for job in jobs:
        try:
            rows.append(job_row(client.post(job_path(job, f":{verb}"), body)))
        except PhalanxError as error:
            if len(jobs) == 1 or error.exit_code == Exit.UNREACHABLE:
                raise
            click.echo(f"phalanx: {error}", err=True)
            code = code or error.exit_code
    emit(rows, COLUMNS, output)
    return code
