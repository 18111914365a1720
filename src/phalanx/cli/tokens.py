"""`phalanx tokens`: what lets programs in."""

from __future__ import annotations

from urllib.parse import quote

import click

from phalanx.cli.client import connect
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.when import clock

COLUMNS = (
    Column("id"),
    Column("user"),
    Column("name"),
    Column("scopes"),
    Column("expires"),
    Column("revoked"),
    Column("created", wide=True),
)
DAY_S = 86_400


@click.group(invoke_without_command=True)
@click.pass_context
@output_option
def tokens(ctx: click.Context, output: Output) -> None:
    """List the tokens you may see; see also `tokens add|revoke`. The tokens themselves are told once, when made."""
    if ctx.invoked_subcommand is None:
        rows = [
            {
                **token,
                "expires": clock(token["expires_ms"]),
                "revoked": token["revoked_ms"] is not None,
                "created": clock(token["created_ms"]),
            }
            for token in connect().get("/tokens")["items"]
        ]
        emit(rows, COLUMNS, output)


@tokens.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(["read", "write", "admin"]),
    multiple=True,
    default=("read", "write"),
    show_default=True,
    help="What it may be used for.",
)
@click.option("--days", type=click.IntRange(1, 3650), default=30, show_default=True, help="How long it lasts.")
@click.option("--user", default="", help="Whose it is to be; only an admin makes tokens for others. Default: yours.")
def add(name: str, scopes: tuple[str, ...], days: int, user: str) -> None:
    """Make a token called NAME and print it."""
    body = {"name": name, "scopes": list(scopes), "ttl_s": days * DAY_S, **({"user": user} if user else {})}
    made = connect().post("/tokens", body)
    click.echo(made["token"])


@tokens.command()
@click.argument("token_id", metavar="ID")
def revoke(token_id: str) -> None:
    """Have the token ID let nobody in any more."""
    connect().change("DELETE", f"/tokens/{quote(token_id, safe='')}")
    click.echo(f"token {token_id} lets nobody in any more", err=True)
