"""`phalanx apply`: changing cluster, queues or policy of a running server, after showing what that would do."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from phalanx.cli.client import Client, Refused, connect
from phalanx.cli.complete import policy_names
from phalanx.cli.files import text_of
from phalanx.cli.output import Output, as_json, as_yaml, output_option
from phalanx.document import DocumentError

NAMED_MAX = 20
"""Jobs that a line names."""


@click.command()
@click.argument("file", metavar="[FILE]", required=False)
@click.option(
    "--policy",
    shell_complete=policy_names,
    metavar="NAME[:key=value,…]",
    help="Change only the policy.",
)
@click.option("--yes", is_flag=True, help="Make the change without asking.")
@click.option("--dry-run", is_flag=True, help="Show the difference and change nothing.")
@output_option
def apply(file: str | None, policy: str | None, yes: bool, dry_run: bool, output: Output) -> None:
    """Change the cluster, its queues or its policy to those of FILE, after showing the difference.

    Shows which jobs the change would stop, and asks before it makes the change. FILE is a cluster file. A FILE with
    only `queues`, `policy`, `maintenance`, `defragment`, `patience` or `recovery` changes these and leaves the rest as
    it is.
    """
    if bool(file) == bool(policy):
        raise click.UsageError("expected FILE, or --policy NAME to change no more than that")
    client = connect()
    change = _cluster_change(client, file) if file else _policy_change(client, policy or "")
    _show(change.difference, output)
    for warning in change.difference.get("warnings") or []:
        click.echo(f"warning: {warning}", err=True)
    if dry_run or not change.difference.get("changes"):
        return
    if not yes:
        _confirm()
    change.make()
    click.echo("applied", err=True)


class Change(NamedTuple):
    """What would change, and what makes it change."""

    difference: dict[str, Any]
    make: Callable[[], object]


def _cluster_change(client: Client, file: str) -> Change:
    from phalanx.cluster.formats.native import read_cluster
    from phalanx.cluster.formats.settings import is_settings

    text = text_of(file)
    try:
        read_cluster(text, file)
    except DocumentError:
        if not is_settings(text, file):
            raise
    try:
        difference = client.put_yaml("/cluster", text, dry_run=True)
    except Refused as error:
        # What is said of settings is read where the cluster is known, by code that does not know the file's name.
        raise Refused(re.sub(r"^cluster(?=:\d+: )", lambda _: file, str(error))) from None
    return Change(difference, lambda: client.put_yaml("/cluster", text))


def _policy_change(client: Client, policy: str) -> Change:
    present = client.get("/policy")["policy"]
    changes = [f"policy: {present} becomes {policy}"] if policy != present else []
    return Change(
        {"changes": changes, "stops": [], "strands": [], "warnings": []},
        lambda: client.change("PUT", "/policy", {"policy": policy}),
    )


def _show(difference: dict[str, Any], output: Output) -> None:
    if output == "json":
        click.echo(as_json(difference))
        return
    if output == "yaml":
        click.echo(as_yaml(difference), nl=False)
        return
    for change in difference.get("changes") or ["No changes."]:
        click.echo(change if isinstance(change, str) else as_json(change))
    stopped = difference.get("stops") or []
    if stopped:
        what = "running job" if len(stopped) == 1 else "running jobs"
        click.echo(f"stops {len(stopped)} {what}: {', '.join(map(str, stopped))}")
    stranded = difference.get("strands") or []
    if stranded:
        what = "pending job asks" if len(stranded) == 1 else "pending jobs ask"
        could = "its queue" if len(stranded) == 1 else "their queues"
        named = f"{', '.join(stranded[:NAMED_MAX])}{', …' if len(stranded) > NAMED_MAX else ''}"
        click.echo(f"{len(stranded)} {what} for more than {could} could ever have then, and will not start: {named}")


def _confirm() -> None:
    if not sys.stdin.isatty():
        raise Refused(
            "stdin is not a terminal, so the change cannot be confirmed; look with --dry-run, then pass --yes"
        )
    if not click.confirm("Apply this?", err=True):
        raise click.Abort
