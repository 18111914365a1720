"""`phalanx login`: getting a token from a server and keeping it."""

from __future__ import annotations

import socket
import sys

import click

from phalanx.cli.client import connect
from phalanx.cli.context import Context, config_path, current_context, load_config, save_config
from phalanx.cli.users import asked_password

DAY_S = 86_400


@click.command()
@click.argument("addr", required=False, metavar="[ADDR]")
@click.option(
    "--context", "name", default="default", show_default=True, help="Name of the context that stores address and token."
)
@click.option("--user", help="Log in as this user; asks for the password.")
@click.option(
    "--token-stdin", is_flag=True, help="Read a token from standard input instead of logging in with a password."
)
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(["read", "write", "admin"]),
    multiple=True,
    help="With --user: scope of the token; repeatable. Default: all that your roles allow.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=30,
    show_default=True,
    help="With --user: lifetime of the token in days.",
)
@click.option(
    "--ca-file", default="", metavar="FILE", help="CA certificates to trust in addition to those of the system."
)
def login(
    addr: str | None,
    name: str,
    user: str | None,
    token_stdin: bool,
    scopes: tuple[str, ...],
    days: int,
    ca_file: str,
) -> None:
    """Log in to the server at ADDR and store the token in the config file, which only you can read."""
    if scopes and (token_stdin or not user):
        raise click.UsageError("--scope goes with --user; the scopes of a token are those it was made with")
    found = current_context()
    context = Context((addr or found.addr).rstrip("/"), "", ca_file or found.ca_file)
    if token_stdin:
        token = sys.stdin.readline().strip()
    elif user:
        password = asked_password("Password")
        body = {"user": user, "password": password, "name": socket.gethostname(), "ttl_s": days * DAY_S}
        chosen = {"scopes": list(scopes)} if scopes else {}
        token = connect(context).post("/login", {**body, **chosen})["token"]
    elif found.token and found.addr == context.addr:
        token = found.token
    else:
        raise click.UsageError("name your user with --user NAME, or give a token with --token-stdin")
    context = Context(context.addr, token, context.ca_file)
    me = connect(context).get("/me")
    config = load_config()
    config.contexts[name], config.current = context, name
    save_config(config)
    click.echo(f"logged in to {context.addr} as {me['user']}; kept as '{name}' in {config_path()}", err=True)
