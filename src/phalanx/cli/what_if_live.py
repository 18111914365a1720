"""Two futures of the live server, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from phalanx.cli.client import connect
from phalanx.cli.job_text import read_checked
from phalanx.cli.output import Column, Output, as_json, as_yaml, cell, emit
from phalanx.cli.when import clock, span

COLUMNS = (
    Column("future"),
    Column("policy"),
    Column("jobs"),
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


def what_if_live(changes: Changes, output: Output) -> None:
    """Asks the server and prints both futures. Nothing is changed."""
    import yaml

    count, _, like = (changes.add_nodes or "0").partition(":")
    if not count.isdecimal():
        raise click.UsageError(f"--add-nodes {changes.add_nodes}: expected a number, or N:NODE such as 8:n0.")
    body = {
        "fail": list(changes.fail),
        "jobs": [yaml.safe_load(read_checked(path)) for path in changes.jobs],
        "policy": changes.policy,
        "add_nodes": int(count),
        "like": like,
    }
    told = connect().post("/what-if", body)
    if output in ("json", "yaml"):
        data = {"as_it_is": told["base"], "what_if": told["changed"]}
        click.echo(as_json(data) if output == "json" else as_yaml(data), nl=output == "json")
        return
    emit([_row("as it is", told["base"]), _row("what if", told["changed"])], COLUMNS, output)
    for job in told["changed"]["submitted"]:
        click.echo(_fate(job))


def _row(name: str, future: dict[str, Any]) -> dict[str, Any]:
    held = future["gpu_allocated"]
    return {
        **future,
        "future": name,
        "mean_jct": _span(future["mean_jct_s"]),
        "mean_wait": _span(future["mean_wait_s"]),
        "makespan": _span(future["makespan_s"]),
        "gpus_busy": None if held is None else f"{held:.0%}",
    }


def _span(seconds: float | None) -> str | None:
    return None if seconds is None else span(1000 * seconds)


def _fate(job: dict[str, Any]) -> str:
    name = cell(job["name"] or job["job"])
    if job["start_ms"] is None:
        return f"{name} does not start: {job['why']}"
    end = f"ends at {clock(job['end_ms'])}" if job["end_ms"] is not None else "does not end as far as can be seen"
    return f"{name} starts at {clock(job['start_ms'])} and {end}"
