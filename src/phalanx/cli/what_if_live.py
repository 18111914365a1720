"""Two futures of the live server, side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import click

from phalanx.cli.client import Refused, connect
from phalanx.cli.job_text import Site, read_checked, site_of, with_file
from phalanx.cli.output import Column, Output, as_json, as_yaml, cell, emit
from phalanx.cli.when import clock, span

Future: TypeAlias = dict[str, Any]

ADD_MAX = 10_000

COLUMNS = (
    Column("future"),
    Column("policy"),
    Column("jobs"),
    Column("started"),
    Column("finished"),
    Column("mean_jct", "MEAN JCT"),
    Column("mean_wait", "MEAN WAIT"),
    Column("makespan"),
    Column("gpus_busy", "GPUS HELD"),
)


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to happen now."""

    fail: tuple[str, ...]
    jobs: tuple[str, ...]
    policy: str | None
    add_nodes: str | None

    def nodes(self) -> tuple[int, str]:
        """How many nodes are to come, and the one they are to be like; empty if none is named."""
        count, _, like = (self.add_nodes or "0").partition(":")
        if not count.isdecimal() or int(count) > ADD_MAX:
            expected = f"expected a number up to {ADD_MAX:,}, or N:NODE such as 8:n0."
            raise click.UsageError(f"--add-nodes {self.add_nodes}: {expected}")
        return int(count), like


def what_if_live(changes: Changes, output: Output) -> None:
    """Asks the server and prints both futures. Nothing is changed."""
    count, like = changes.nodes()
    client = connect()
    site = site_of(client) if changes.jobs else Site()
    body = {
        "fail": list(changes.fail),
        "jobs": [read_checked(path, site) for path in changes.jobs],
        "policy": changes.policy,
        "add_nodes": count,
        "like": like,
    }
    try:
        told = client.post("/what-if", body)
    except Refused as refused:
        raise with_file(refused, changes.jobs) from None
    show_futures(told["base"], told["changed"], lambda at_ms: f"at {clock(at_ms)}", output)


def show_futures(base: Future, changed: Future, when: Callable[[int], str], output: Output) -> None:
    """Prints two futures side by side, and what becomes of the jobs that are only in the second."""
    if output in ("json", "yaml"):
        data = {"as_it_is": base, "what_if": changed}
        click.echo(as_json(data) if output == "json" else as_yaml(data), nl=output == "json")
        return
    emit([_row("as it is", base), _row("what if", changed)], COLUMNS, output)
    if output != "name":
        for job in changed["submitted"]:
            click.echo(_fate(job, when))


def _row(name: str, future: Future) -> dict[str, Any]:
    held = future["gpu_allocated"]
    return {
        # A server of an older release does not say it.
        "started": None,
        **future,
        "future": name,
        "mean_jct": _span(future["mean_jct_s"]),
        "mean_wait": _span(future["mean_wait_s"]),
        "makespan": _span(future["makespan_s"]),
        "gpus_busy": None if held is None else f"{held:.0%}",
    }


def _span(seconds: float | None) -> str | None:
    return None if seconds is None else span(1000 * seconds)


def _fate(job: dict[str, Any], when: Callable[[int], str]) -> str:
    name = cell(job["name"] or job["job"])
    if job["start_ms"] is None:
        return f"{name} does not start: {job['why']}"
    end = f"ends {when(job['end_ms'])}" if job["end_ms"] is not None else "does not end as far as can be seen"
    return f"{name} starts {when(job['start_ms'])} and {end}"
