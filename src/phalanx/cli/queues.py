"""`phalanx queues`: who has how much, and who waits for how much."""

from __future__ import annotations

import click

from phalanx.cli.client import connect
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.watch import shown, watch_option

COLUMNS = (Column("name"), Column("running"), Column("waiting"), Column("gpus_used"), Column("gpus_waiting"))


@click.command()
@watch_option
@output_option
def queues(watch: bool, output: Output) -> None:
    """List the queues."""
    client = connect()
    shown(lambda: emit(client.get("/queues")["items"], COLUMNS, output), watch)
