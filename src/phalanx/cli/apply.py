"""`phalanx apply`: changing cluster, queues or policy of a running server, after showing what that would do."""

from __future__ import annotations

import sys
from typing import Any

import click

from phalanx.cli.client import Refused, connect
from phalanx.cli.files import text_of
from phalanx.cli.output import Output, as_json, as_yaml, output_option


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the difference and change nothing.")
@output_option
def apply(file: str, yes: bool, dry_run: bool, output: Output) -> None:
    """Show how the cluster file FILE differs from what the server has and what that would stop; then change it."""
    from phalanx.cluster.formats.native import read_cluster

    text = text_of(file)
    read_cluster(text, file)
    client = connect()
    difference = client.put_yaml("/cluster", text, dry_run=True)
    _show(difference, output)
    if dry_run or not difference.get("changes"):
        return
    if not yes:
        _confirm(difference)
    client.put_yaml("/cluster", text)
    click.echo("applied", err=True)


def _show(difference: dict[str, Any], output: Output) -> None:
    if output == "json":
        click.echo(as_json(difference))
        return
    if output == "yaml":
        click.echo(as_yaml(difference), nl=False)
        return
    for change in difference.get("changes") or ["nothing changes"]:
        click.echo(change if isinstance(change, str) else as_json(change))
    stopped = difference.get("stops") or []
    if stopped:
        click.echo(f"stops {len(stopped)} running jobs: {', '.join(map(str, stopped))}")


def _confirm(difference: dict[str, Any]) -> None:
    if not sys.stdin.isatty():
        raise Refused("nobody is there to be asked; look at it with --dry-run, then say --yes")
    if not click.confirm("Apply this?", err=True):
        raise click.Abort
