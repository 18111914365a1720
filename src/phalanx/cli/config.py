"""`phalanx config`: the servers this user talks to."""

from __future__ import annotations

import click

from phalanx.cli.client import NotFound
from phalanx.cli.context import Config, config_path, current_context, load_config, save_config
from phalanx.cli.output import Column, Output, emit, output_option

COLUMNS = (Column("name"), Column("current"), Column("addr"), Column("token"), Column("ca_file", wide=True))
TOKEN_SHOWN = 6


@click.group(invoke_without_command=True)
@click.pass_context
@output_option
def config(ctx: click.Context, output: Output) -> None:
    """Show the contexts of the config file. Tokens are shortened."""
    if ctx.invoked_subcommand is not None:
        return
    known = load_config()
    rows = [
        {
            "name": name,
            "current": name == known.current,
            "addr": context.addr,
            "token": f"{context.token[:TOKEN_SHOWN]}…" if context.token else None,
            "ca_file": context.ca_file,
        }
        for name, context in known.contexts.items()
    ]
    emit(rows, COLUMNS, output)


@config.command()
@click.argument("name")
def use(name: str) -> None:
    """Use the server of the context NAME from now on."""
    known = _with(name)
    known.current = name
    save_config(known)


@config.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove the context NAME and its token from the config file."""
    known = _with(name)
    del known.contexts[name]
    if known.current == name:
        known.current = ""
    save_config(known)


@config.command()
def path() -> None:
    """Print the path of the config file."""
    click.echo(config_path())


@config.command()
def addr() -> None:
    """Print the address of the server that verbs use now."""
    click.echo(current_context().addr)


def _with(name: str) -> Config:
    known = load_config()
    if name not in known.contexts:
        raise NotFound(f"context '{name}': {config_path()} has {', '.join(known.contexts) or 'none'}")
    return known
