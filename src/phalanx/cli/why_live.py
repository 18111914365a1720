"""Why a job of the live server waits."""

from __future__ import annotations

from phalanx.cli.client import connect, job_path
from phalanx.cli.output import Column, Output, emit_one
from phalanx.cli.when import clock, now_ms, span

COLUMNS = (
    Column("job"),
    Column("state"),
    Column("reason"),
    Column("why"),
    Column("sooner"),
    Column("expected_start"),
    Column("not_before"),
    Column("behind"),
    Column("waits_for"),
)
ALWAYS = ("job", "state", "reason", "why")


def why_live(job: str, output: Output) -> None:
    """Asks the server and prints what it says."""
    told = connect().get(job_path(job, "/why"))
    row = {
        **told,
        "expected_start": _expected(told.get("expected_start_ms")),
        "not_before": clock(told.get("not_before_ms")),
    }
    emit_one(row, [column for column in COLUMNS if column.key in ALWAYS or row.get(column.key)], output)


def _expected(at_ms: int | None) -> str | None:
    return None if at_ms is None else f"{clock(at_ms)}, in {span(at_ms - now_ms())}"
