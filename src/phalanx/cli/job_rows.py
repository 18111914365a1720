"""Jobs as rows of a table: what the server says of them, and what people want to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.cli.output import STATE, Column
from phalanx.cli.when import ago, clock, now_ms, span

COLUMNS = (
    Column("id"),
    Column("name", least=8),
    STATE,
    Column("why"),
    Column("queue", least=8, tail=True, spare=True),
    Column("user", least=6, spare=True),
    Column("gpus"),
    Column("where", "NODES", least=6, spare=True),
    Column("age"),
    Column("ran", spare=True),
    Column("kind", wide=True),
    Column("priority", wide=True),
    Column("attempts", wide=True),
    Column("preemptions", wide=True),
    Column("started", wide=True),
    Column("told_start", "TOLD START", wide=True),
    Column("lost_gpu_h", "LOST GPU-H", wide=True),
    Column("exit_code", wide=True),
    Column("end_reason", wide=True),
)

PREEMPTIONS = "preemptions"

LIVE = "waiting,starting,running,suspended,stopping"
NODES_SHOWN_MAX = 3
HOUR_MS = 3_600_000


def columns_of(rows: Sequence[dict[str, Any]]) -> list[Column]:
    """The columns for some jobs: how often each was preempted is shown to all where one of them was."""
    preempted = any(row.get(PREEMPTIONS) for row in rows)
    return [each._replace(wide=False) if preempted and each.key == PREEMPTIONS else each for each in COLUMNS]


def job_row(job: dict[str, Any]) -> dict[str, Any]:
    """A job with the columns that are worked out here. Programs get all that the server said beside them."""
    return {
        **job,
        "why": job.get("reason"),
        "where": where(job.get("nodes") or []),
        "age": ago(job.get("submitted_ms")),
        "ran": ran(job),
        "started": clock(job.get("started_ms")),
        "told_start": told_start(job),
        "lost_gpu_h": round(job.get("lost_gpu_ms", 0) / HOUR_MS, 2) or None,
    }


def told_start(job: dict[str, Any]) -> str | None:
    """The start that was told at the submission, and how far off it was; None if none was told."""
    told_ms, started_ms = job.get("told_start_ms"), job.get("started_ms")
    if told_ms is None:
        return None
    if started_ms is None:
        return clock(told_ms)
    off = span(abs(started_ms - told_ms))
    how = "on time" if off == "0s" else f"{off} {'late' if started_ms > told_ms else 'early'}"
    return f"{clock(told_ms)} ({how})"


def where(nodes: list[str]) -> str | None:
    """The first nodes of a job, and how many more there are."""
    more = len(nodes) - NODES_SHOWN_MAX
    return (",".join(nodes[:NODES_SHOWN_MAX]) + (f" +{more}" if more > 0 else "")) or None


def ran(job: dict[str, Any]) -> str | None:
    """How long a job has run, over all its attempts: not while it waits for the next."""
    if job.get("started_ms") is None:
        return None
    since_ms = job["running_since_ms"]
    return span(job["executed_before_ms"] + (now_ms() - since_ms if since_ms is not None else 0))
