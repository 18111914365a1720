"""`phalanx queues`: who has how much, who may have how much, and who waits for how much."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.client import connect
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.watch import shown, watch_option

COLUMNS = (
    Column("name", least=16, tail=True),
    Column("running"),
    Column("waiting"),
    Column("gpus_used", "USED"),
    Column("gpus_waiting", "WANTED"),
)
QUOTA_COLUMNS = (Column("guaranteed"), Column("deserved"), Column("limit"))
CELL_COLUMNS = (Column("free"), Column("opportunistic"), Column("cells", "FREE CELLS", least=12))


@click.command()
@watch_option
@output_option
def queues(watch: bool, output: Output) -> None:
    """List the queues: their jobs, the GPUs these have and want, and what the queues are allotted or own."""
    client = connect()
    shown(lambda: _show(client.get("/queues")["items"], output), watch)


def _show(found: list[dict[str, Any]], output: Output) -> None:
    quotas = QUOTA_COLUMNS if any(queue.get("quota") for queue in found) else ()
    cells = CELL_COLUMNS if any(queue.get("virtual_cluster") for queue in found) else ()
    rows = found if output in ("json", "yaml") else [{**queue, **_allotted(queue), **_owned(queue)} for queue in found]
    emit(rows, (*COLUMNS, *quotas, *cells), output)


def _allotted(queue: dict[str, Any]) -> dict[str, Any]:
    """What the cluster file says of its GPUs."""
    quota = queue.get("quota") or {}
    told = {amount: (quota.get(amount) or {}).get("gpus_permille") for amount in ("guaranteed", "deserved", "limit")}
    return {amount: None if permille is None else permille / 1000 for amount, permille in told.items()}


def _owned(queue: dict[str, Any]) -> dict[str, Any]:
    """What is free of what a virtual cluster owns, in GPUs and in cells."""
    owner = queue.get("virtual_cluster")
    if owner is None:
        return {}
    cells = [f"{each['free']}/{each['count']} {each['type']}" for each in owner["cells"]]
    return {
        "free": f"{owner['gpus_free']}/{owner['gpus']}",
        "opportunistic": owner["gpus_opportunistic"],
        "cells": ", ".join(cells),
    }
