"""`phalanx drain` and `undrain`: nodes that take no new work for a while."""

from __future__ import annotations

from urllib.parse import quote

import click

from phalanx.cli.client import connect
from phalanx.cli.complete import node_names


@click.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=node_names)
@click.option("--reason", default="", help="For those who ask why.")
def drain(nodes: tuple[str, ...], reason: str) -> None:
    """Have the nodes NODE... take no new work. What runs there goes on."""
    client = connect()
    for node in nodes:
        changed = client.post(f"/nodes/{quote(node, safe='')}:drain", {"reason": reason})
        click.echo(f"{node}: {changed['health']}", err=True)


@click.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=node_names)
def undrain(nodes: tuple[str, ...]) -> None:
    """Let the nodes NODE... take work again."""
    client = connect()
    for node in nodes:
        changed = client.post(f"/nodes/{quote(node, safe='')}:undrain")
        click.echo(f"{node}: {changed['health']}", err=True)
