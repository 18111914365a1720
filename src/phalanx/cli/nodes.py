"""`phalanx nodes`: the machines, what is wrong with them and what is free on them."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.client import connect
from phalanx.cli.output import Column, Output, emit, output_option, say
from phalanx.cli.simulated import banner_of
from phalanx.cli.state_file import state_option
from phalanx.cli.watch import shown, watch_option

REASON = Column("reason")
OUT = Column("out", "GPUS OUT")
COLUMNS = (
    Column("name", least=16),
    Column("health"),
    Column("gpu_type"),
    Column("gpus"),
    Column("gpus_used", "USED"),
    OUT,
    Column("jobs", least=8),
    REASON,
    Column("cpus", wide=True),
    Column("memory_gb", wide=True),
    Column("where", "PATH", wide=True),
    Column("labels", wide=True),
)
NODES_MAX = 100_000


@click.command()
@click.option(
    "--health",
    type=click.Choice(["healthy", "spare", "suspect", "draining", "failed"]),
    help="Only nodes of this health. Default: all.",
)
@state_option
@watch_option
@output_option
def nodes(health: str | None, state_path: str | None, watch: bool, output: Output) -> None:
    """List the nodes with their health, their GPUs and the jobs on them."""
    if state_path is not None:
        shown(lambda: _show([_row(node) for node in _saved(state_path, health)], output), watch)
        return
    client = connect()
    shown(lambda: _show([_row(node) for node in client.items("/nodes", NODES_MAX, health=health)], output), watch)


def _saved(path: str, health: str | None) -> list[dict[str, Any]]:
    from phalanx.cli.saved import state_from
    from phalanx.server.view.lists import nodes_in

    return [node for node in nodes_in(state_from(path)) if health is None or node["health"] == health]


def _show(rows: list[dict[str, Any]], output: Output) -> None:
    """Why a node is as it is, and which of its GPUs are out, have columns only where there is something to say."""
    banner = banner_of(sum(bool(row.get("simulated")) for row in rows))
    if banner and output in ("table", "wide"):
        say(banner, err=True)
    silent = [column for column in (REASON, OUT) if not any(row.get(column.key) for row in rows)]
    emit(rows, [column for column in COLUMNS if column not in silent], output)


def _row(node: dict[str, Any]) -> dict[str, Any]:
    labels = node.get("labels") or {}
    return {
        **node,
        "out": ", ".join(f"{each['gpu']} {each['health']}" for each in node.get("gpus_out") or ()),
        "cpus": (node.get("cpus_milli") or 0) / 1000,
        "memory_gb": (node.get("memory_mb") or 0) / 1024,
        "where": "/".join(node.get("path") or ()),
        "labels": ",".join(f"{key}={value}" for key, value in labels.items()) if isinstance(labels, dict) else labels,
    }
