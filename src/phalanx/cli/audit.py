"""`phalanx audit`: changes, with user, time and origin."""

from __future__ import annotations

import click

from phalanx.cli.client import connect
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.when import clock

COLUMNS = (
    Column("at"),
    Column("user", least=6),
    Column("verb"),
    Column("target", least=8),
    Column("outcome"),
    Column("origin"),
    Column("detail", spare=True),
    Column("token", wide=True),
)


@click.command()
@click.option("--user", default="", help="Only changes by this user.")
@click.option("--target", default="", help="Only changes of this job, node, user or other target.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Maximum number of entries.")
@output_option
def audit(user: str, target: str, limit: int, output: Output) -> None:
    """List the requested changes, newest first: time, user, change, target, outcome and origin."""
    found = connect().items("/audit", limit, user=user, target=target)
    emit([{**entry, "at": clock(entry["at_ms"])} for entry in found], COLUMNS, output)
