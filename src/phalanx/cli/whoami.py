"""`phalanx whoami`: which user of which server the token stands for, and what it may do."""

from __future__ import annotations

import click

from phalanx.cli.client import connect
from phalanx.cli.output import Column, Output, emit_one, output_option

COLUMNS = (Column("user"), Column("server"), Column("roles"), Column("scopes"))


@click.command()
@output_option
def whoami(output: Output) -> None:
    """Show your user on the server, your roles in its queues, and the scopes of your token."""
    client = connect()
    me = client.get("/me")
    row = {**me, "server": client.context.addr}
    if output in ("table", "wide"):
        row["roles"] = ", ".join(f"{each['role']} of {each['queue'] or 'every queue'}" for each in me["roles"]) or None
        row["scopes"] = ", ".join(me["scopes"])
    emit_one(row, COLUMNS, output)
