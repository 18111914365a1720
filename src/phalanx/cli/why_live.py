"""Why a job of the live server waits."""

from __future__ import annotations

from typing import Any

from phalanx.cli.client import connect, job_path
from phalanx.cli.output import STATE, Column, Output, emit_one
from phalanx.cli.when import clock, now_ms, span

COLUMNS = tuple(
    STATE if key == "state" else Column(key)
    for key in (
        "job",
        "state",
        "reason",
        "why",
        "expected_start",
        "sooner",
        "other_ways",
        "then",
        "held_by",
        "next_to_end",
        "free_gpus",
        "virtual_cluster",
        "not_healthy",
        "maintenance",
        "reserved_for",
        "min_run",
        "prefers",
        "overdue",
        "preempted",
        "lost",
        "found",
        "deadline",
        "next_replica",
        "position",
        "queues",
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
            "expected_start": expected_start(told, now_ms()),
            "next_replica": (told.get("next_replica") or {}).get("says"),
            "not_before": clock(told.get("not_before_ms")),
        }
    emit_one(row, [column for column in COLUMNS if column.key in ALWAYS or row.get(column.key)], output)


def no_forecast(reason: str) -> str:
    """Instead of when a job is expected to start."""
    return f"unknown: there is no forecast ({reason})"


def expected_start(told: dict[str, Any], at_ms: int) -> str | None:
    """When it will start: the interval of the newest forecast while that can still be, else one moment.

    The two go by different lengths (how long such jobs really took, and what they say), so only one of them is printed.
    """
    if told.get("starts_when"):
        return str(told["starts_when"])
    forecast, unknown = told.get("forecast"), told.get("no_forecast")
    if unknown:
        early_ms = forecast["early_ms"] if forecast is not None else None
        after = f"not before {clock(early_ms)}; then " if early_ms is not None and early_ms > at_ms else ""
        return after + no_forecast(unknown)
    if forecast is not None and (forecast["late_ms"] is None or forecast["late_ms"] >= at_ms):
        return _interval(forecast, at_ms)
    later_ms = told.get("expected_not_before_ms")
    if later_ms is not None and later_ms > at_ms:
        return f"not before {clock(later_ms)}: many others start before it"
    return _moment(told.get("expected_start_ms"), told.get("expected_by"), at_ms)


def _moment(start_ms: int | None, expected_by: str | None, at_ms: int) -> str | None:
    if start_ms is None:
        return None
    if start_ms <= at_ms:
        return "any moment: what it waits for runs longer than was expected"
    lengths = "is usual here" if expected_by == "usual" else "they say"
    return f"{clock(start_ms)}, in {span(start_ms - at_ms)}, if all take as long as {lengths}"


def _interval(made: dict[str, Any], at_ms: int) -> str:
    """When it starts in most runs of a forecast, and how old that is."""
    age = f"told {span(at_ms - made['at_ms'])} ago"
    if made["early_ms"] is None:
        return f"not before {clock(made['at_ms'] + made['horizon_ms'])}, {age}"
    if made["late_ms"] is None:
        half = "" if made["middle_ms"] is None else f", in half of {made['runs']} runs by {clock(made['middle_ms'])}"
        since = "any moment" if made["early_ms"] <= at_ms else f"not before {clock(made['early_ms'])}"
        return f"{since}{half}; how late is unknown, {age}"
    early, late = clock(made["early_ms"]), clock(made["late_ms"])
    between = early if early == late else f"{early} to {late}"
    if made["early_ms"] <= at_ms:
        between = f"any moment, and by {late}"
    return f"{between} in 8 of 10 cases, {age} ({made['runs']} runs)"
