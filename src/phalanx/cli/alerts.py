"""`phalanx alerts`: what the rules of the server say is wrong now."""

from __future__ import annotations

import click

from phalanx.cli.client import connect
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.watch import shown, watch_option
from phalanx.cli.when import clock

COLUMNS = (Column("rule"), Column("subject"), Column("since"), Column("value"), Column("action"))


@click.command()
@watch_option
@output_option
def alerts(watch: bool, output: Output) -> None:
    """List the firing alerts: the rule, the job or node, and the action of the rule."""
    client = connect()

    def show() -> None:
        found = client.get("/alerts")["items"]
        emit([{**alert, "since": clock(alert["since_ms"])} for alert in found], COLUMNS, output)

    shown(show, watch)
