"""Where jobs would go if they were submitted to the live server now."""

from __future__ import annotations

from phalanx.cli.client import connect
from phalanx.cli.job_rows import where
from phalanx.cli.job_text import read_checked, site_of
from phalanx.cli.output import Column, Output, emit
from phalanx.cli.when import now_ms, span

COLUMNS = (
    Column("name"),
    Column("state"),
    Column("gpus"),
    Column("where", "NODES"),
    Column("starts"),
    Column("victims"),
    Column("communication_ms", "COMM MS"),
    Column("why"),
)


def plan_live(files: tuple[str, ...], output: Output) -> None:
    """Asks the server to decide, and prints what it would do. Nothing is changed."""
    client = connect()
    site = site_of(client)
    told = client.post("/plan", {"jobs": [read_checked(path, site) for path in files]})["items"]
    rows = [{**item, "where": where(item["nodes"]), "starts": _starts(item.get("expected_start_ms"))} for item in told]
    emit(rows, COLUMNS, output)


def _starts(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    return "now" if at_ms <= now_ms() + 1000 else f"in {span(at_ms - now_ms())}"
