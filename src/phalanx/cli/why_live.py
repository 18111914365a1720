"""Why a job of the live server waits."""

from __future__ import annotations

from typing import Any

from phalanx.cli.client import connect, job_path
from phalanx.cli.output import Column, Output, emit_one
from phalanx.cli.when import clock, now_ms, span

COLUMNS = tuple(
    Column(key)
    for key in (
        "job",
        "state",
        "reason",
        "why",
        "expected_start",
        "forecast",
        "sooner",
        "other_ways",
        "then",
        "held_by",
        "next_to_end",
        "free_gpus",
        "not_healthy",
        "overdue",
        "deadline",
        "priority",
        "not_before",
    )
)
ALWAYS = ("job", "state", "reason", "why")


def why_live(job: str, output: Output) -> None:
    """Asks the server and prints what it says."""
    told = connect().get(job_path(job, "/why"))
    row = told
    if output not in ("json", "yaml"):
        row = {
            **told,
            **told["evidence"],
            "expected_start": _expected(told.get("expected_start_ms")),
            "forecast": _forecast(told.get("forecast")),
            "not_before": clock(told.get("not_before_ms")),
        }
    emit_one(row, [column for column in COLUMNS if column.key in ALWAYS or row.get(column.key)], output)


def _expected(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    if at_ms <= now_ms():
        return "any moment: what it waits for runs longer than was expected"
    return f"{clock(at_ms)}, in {span(at_ms - now_ms())}"


def _forecast(made: dict[str, Any] | None) -> str | None:
    """The interval of the newest forecast, and how old that is."""
    if made is None:
        return None
    age = f"told {span(now_ms() - made['at_ms'])} ago"
    if made["early_ms"] is None:
        return f"not before {clock(made['at_ms'] + made['horizon_ms'])}, {age}"
    if made["late_ms"] is None:
        return f"not before {clock(made['early_ms'])}, {age}"
    if made["late_ms"] < now_ms():
        return f"was {clock(made['late_ms'])} at the latest, {age}: what it waits for runs longer than was expected"
    return f"{clock(made['early_ms'])} to {clock(made['late_ms'])} in 8 of 10 cases, {age} ({made['runs']} runs)"
