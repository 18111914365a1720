"""`phalanx reservations`: what is promised to whom, and from when."""

from __future__ import annotations

import click

from phalanx.cli.client import connect
from phalanx.cli.job_rows import where
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.watch import shown, watch_option
from phalanx.cli.when import clock, now_ms, span

COLUMNS = (Column("job"), Column("at"), Column("in"), Column("where", "NODES"))


@click.command()
@watch_option
@output_option
def reservations(watch: bool, output: Output) -> None:
    """List the reservations: which job gets which nodes, and when, by what is known now."""
    client = connect()

    def show() -> None:
        rows = [
            {**each, "at": clock(each["at_ms"]), "in": span(each["at_ms"] - now_ms()), "where": where(each["nodes"])}
            for each in client.get("/reservations")["items"]
        ]
        emit(rows, COLUMNS, output)

    shown(show, watch)
