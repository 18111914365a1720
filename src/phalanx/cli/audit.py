"""`phalanx audit`: who changed what, when, and from where."""

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
@click.option("--user", default="", help="Only what one user did.")
@click.option("--target", default="", help="Only what was done to one job, node, user, …")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many, newest first.")
@output_option
def audit(user: str, target: str, limit: int, output: Output) -> None:
    """List every change that was asked for, the newest first: who, what, when, from where, and how it came out."""
    found = connect().items("/audit", limit, user=user, target=target)
    emit([{**entry, "at": clock(entry["at_ms"])} for entry in found], COLUMNS, output)
