"""`phalanx drain` and `undrain`: nodes that take no new work for a while."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import click

from phalanx.cli.client import Client, NotFound, Refused, connect, job_path
from phalanx.cli.complete import node_names
from phalanx.cli.when import clock, moment, now_ms

LOOK_S = 1.0

gpus_option = click.option(
    "--gpu", "gpus", multiple=True, type=click.IntRange(0), metavar="N", help="Only this GPU; may be repeated."
)


@click.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=node_names)
@gpus_option
@click.option("--reason", default="", help="Reason, shown by `nodes`.")
@click.option("--evict", is_flag=True, help="Requeue the jobs that run there: they start on other nodes.")
@click.option("--by", metavar="TIME", help="With --evict: when jobs are requeued, such as +30m. They may end before.")
def drain(nodes: tuple[str, ...], gpus: tuple[int, ...], reason: str, evict: bool, by: str | None) -> None:
    """Drain the nodes NODE...: they take no new work. Running jobs continue unless they are evicted.

    With --gpu, only these GPUs take no new work, and their node goes on with the rest.
    """
    if evict and gpus:
        raise click.UsageError("--evict is for whole nodes: requeue the jobs on a GPU with `phalanx requeue`")
    if by is not None and not evict:
        raise click.UsageError("--by says when jobs are evicted: add --evict")
    by_ms = moment(by, "--by")
    if by is not None and by_ms < now_ms():
        raise click.UsageError(f"--by {by}: expected a time to come, such as +30m or 2030-01-31T08:00Z")
    client = connect()
    for node in nodes:
        drain_node(client, node, gpus, reason)
    if evict:
        _evict(client, nodes, by_ms)


def drain_node(client: Client, node: str, gpus: Sequence[int], reason: str, share_max: float = 1.0) -> None:
    """Drains a node, or only these GPUs of it, and says how it stands then. With a share of the nodes, only if no more
    are out of service then.
    """
    bound = {} if share_max >= 1.0 else {"share_max": share_max}
    _say(client.post(f"{_path(node)}:drain", {"reason": reason, "gpus": list(gpus), **bound}))


def _evict(client: Client, nodes: tuple[str, ...], by_ms: int) -> None:
    """Requeues the jobs that are on nodes at a moment. Until then jobs may end, and none comes."""
    jobs = _jobs_on(client, nodes)
    if jobs and by_ms > now_ms():
        told = f"{len(jobs)} {'job is' if len(jobs) == 1 else 'jobs are'} evicted at {clock(by_ms)}"
        click.echo(f"{told}; Ctrl-C leaves the nodes drained and evicts none", err=True)
    while jobs and by_ms > now_ms():
        time.sleep(min(LOOK_S, max(by_ms - now_ms(), 0) / 1000))
        jobs = _jobs_on(client, nodes)
    for job in jobs:
        try:
            client.post(job_path(job, ":requeue"))
            click.echo(f"job {job}: requeued", err=True)
        except (NotFound, Refused) as error:
            # It may have ended meanwhile.
            click.echo(f"job {job}: {error}", err=True)
    if not jobs:
        click.echo("no job runs there", err=True)


def _jobs_on(client: Client, nodes: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(job for node in nodes for job in client.get(_path(node))["jobs"]))


def _path(node: str) -> str:
    return f"/nodes/{quote(node, safe='')}"


@click.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", shell_complete=node_names)
@gpus_option
def undrain(nodes: tuple[str, ...], gpus: tuple[int, ...]) -> None:
    """Return the nodes NODE... to service, or with --gpu these GPUs of them."""
    client = connect()
    for node in nodes:
        _say(client.post(f"{_path(node)}:undrain", {"gpus": list(gpus)}))


def _say(node: dict[str, Any]) -> None:
    out = ", ".join(f"GPU {each['gpu']} {each['health']}" for each in node.get("gpus_out") or ())
    click.echo(f"{node['name']}: {node['health']}{f', {out}' if out else ''}", err=True)
