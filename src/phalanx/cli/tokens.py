"""`phalanx tokens`: what lets programs in."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import click

from phalanx.cli.client import NotFound, connect
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.when import clock

COLUMNS = (
    Column("id"),
    Column("user"),
    Column("name"),
    Column("scopes"),
    Column("expires"),
    Column("revoked"),
    Column("parent"),
    Column("created", wide=True),
)
DAY_S = 86_400


@click.group(invoke_without_command=True)
@click.pass_context
@output_option
def tokens(ctx: click.Context, output: Output) -> None:
    """List the tokens you may see, or manage them with a subcommand. The text of a token is shown only when created."""
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
    help="Scope of the token; repeatable.",
)
@click.option(
    "--days", type=click.IntRange(1, 3650), help="Lifetime in days. Default: 30, at most that of your own token."
)
@click.option(
    "--user", default="", help="User of the token; another user than yourself needs the role admin. Default: you."
)
def add(name: str, scopes: tuple[str, ...], days: int | None, user: str) -> None:
    """Create the token NAME and print it. It expires no later than the token you are logged in with."""
    body: dict[str, Any] = {"name": name, "scopes": list(scopes)}
    if days is not None:
        body["ttl_s"] = days * DAY_S
    if user:
        body["user"] = user
    made = connect().post("/tokens", body)
    click.echo(made["token"])
    click.echo(f"token {made['id']} ends {clock(made['expires_ms'])}, or when {made['parent']} is revoked", err=True)


@tokens.command()
@click.argument("token_id", metavar="ID")
def revoke(token_id: str) -> None:
    """Revoke the token ID and all tokens that were created with it."""
    if not re.fullmatch(r"[0-9a-f]{12}", token_id):
        raise NotFound(f"there is no token '{token_id}': give its ID, as `phalanx tokens` lists it")
    others = connect().change("DELETE", f"/tokens/{quote(token_id, safe='')}")["revoked"] - 1
    tokens_made = f" and {others} made with it" if others else ""
    click.echo(f"revoked token {token_id}{tokens_made}", err=True)
