"""`phalanx queues`: what each queue has, may have, and has pending."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.client import connect
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.state_file import at_option, state_option
from phalanx.cli.watch import shown, watch_option

MS_PER_HOUR = 3_600_000

AMOUNTS = ("guaranteed", "deserved", "limit")
UNITS = {"gpus_permille": 1000, "cpus_milli": 1000, "memory_mb": 1024}
"""How many of what is counted make one of what is shown."""

COLUMNS = (
    Column("name", least=16, tail=True),
    Column("running"),
    Column("waiting", "PENDING"),
    Column("gpus_used", "USED"),
    Column("gpus_waiting", "WANTED"),
)
QUOTA_COLUMNS = (Column("guaranteed"), Column("deserved"), Column("limit"))
BESIDE_COLUMNS = (Column("cpus_milli", "CPUS", least=12), Column("memory_mb", "MEMORY GB", least=12))
BUDGET_COLUMNS = (Column("budget", "GPU-HOURS"),)
CELL_COLUMNS = (Column("free"), Column("opportunistic"), Column("cells", "FREE CELLS", least=12))


@click.command()
@state_option
@at_option
@watch_option
@output_option
def queues(state_path: str | None, at: str | None, watch: bool, output: Output) -> None:
    """List the queues with their jobs, GPUs in use, GPUs wanted and quotas; a queue includes those below it."""
    if at is not None or state_path is not None:
        shown(lambda: show(_saved(state_path, at), output), watch)
        return
    client = connect()
    shown(lambda: show(client.get("/queues")["items"], output), watch)


def _saved(path: str | None, at: str | None) -> list[dict[str, Any]]:
    from phalanx.cli.past_state import state_then
    from phalanx.cli.saved import state_from
    from phalanx.server.view.lists import queues_in

    return queues_in(state_then(path, at) if at is not None else state_from(path or ""))


def show(found: list[dict[str, Any]], output: Output) -> None:
    """Prints queues, with the columns that any of them has something in."""
    quotas = QUOTA_COLUMNS if any(queue.get("quota") for queue in found) else ()
    beside = tuple(column for column in BESIDE_COLUMNS if any(_said(queue, column.key) for queue in found))
    budgets = BUDGET_COLUMNS if any(_budget_ms(queue) is not None for queue in found) else ()
    cells = CELL_COLUMNS if any(queue.get("virtual_cluster") for queue in found) else ()
    rows = found
    if output not in ("json", "yaml"):
        rows = [{**queue, **_allotted(queue), "budget": _budget(queue), **_owned(queue)} for queue in found]
    emit(rows, (*COLUMNS, *quotas, *beside, *budgets, *cells), output)


def _allotted(queue: dict[str, Any]) -> dict[str, Any]:
    """What the cluster file says of its GPUs, CPUs and memory, and what it has of these, by the same count."""
    told = {amount: permille / UNITS["gpus_permille"] for amount, permille in _said(queue, "gpus_permille").items()}
    used = queue.get("quota_used")
    gpus = {"gpus_used": used["gpus_permille"] / UNITS["gpus_permille"]} if used is not None else {}
    beside = {column.key: _of_what_is_said(queue, column.key) for column in BESIDE_COLUMNS}
    return {**dict.fromkeys(AMOUNTS), **told, **gpus, **beside}


def _said(queue: dict[str, Any], resource: str) -> dict[str, int]:
    """What a queue is allotted of a resource, as far as something is said of it."""
    quota = queue.get("quota") or {}
    told = {amount: (quota.get(amount) or {}).get(resource) for amount in AMOUNTS}
    return {amount: each for amount, each in told.items() if each is not None}


def _of_what_is_said(queue: dict[str, Any], resource: str) -> str | None:
    """What a queue has of a resource, and what it is allotted of it."""
    told = [f"{amount} {each / UNITS[resource]:g}" for amount, each in _said(queue, resource).items()]
    if not told:
        return None
    used = queue.get("quota_used")
    return f"{'?' if used is None else format(used[resource] / UNITS[resource], 'g')} ({', '.join(told)})"


def _budget_ms(queue: dict[str, Any]) -> int | None:
    budget_ms: int | None = (queue.get("quota") or {}).get("budget_gpu_ms")
    return budget_ms


def _budget(queue: dict[str, Any]) -> str | None:
    """What is used of its budget, in GPU-hours."""
    whole_ms, spent_ms = _budget_ms(queue), queue.get("budget_spent_gpu_ms")
    if whole_ms is None:
        return None
    return f"{'?' if spent_ms is None else _hours(spent_ms)} of {whole_ms / MS_PER_HOUR:g}"


def _hours(gpu_ms: int) -> str:
    """To a tenth of an hour; of less than one, two figures that say something."""
    hours = gpu_ms / MS_PER_HOUR
    return f"{hours:.1f}" if not hours or hours >= 1 else f"{hours:.2g}"


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
