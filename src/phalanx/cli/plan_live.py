"""Where jobs would go if they were submitted to the live server now."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.cli.client import Refused, connect
from phalanx.cli.job_rows import where
from phalanx.cli.job_text import read_checked, site_of, tell_of_batches, with_file
from phalanx.cli.output import STATE, Column, Output, emit
from phalanx.cli.when import now_ms, span
from phalanx.engine.why.change import Other
from phalanx.words.others import leaving_words

COLUMNS = (
    Column("name", least=8),
    STATE,
    Column("gpus", spare=True),
    Column("where", "NODES", least=10),
    Column("starts", spare=True),
    Column("leaving", "VICTIMS"),
    Column("communication_ms", "COMM MS", spare=True),
    Column("price", spare=True),
    Column("why"),
)


def plan_live(files: tuple[str, ...], output: Output) -> None:
    """Asks the server to decide, and prints what it would do. Nothing is changed."""
    client = connect()
    site = site_of(client)
    jobs = [read_checked(path, site) for path in files]
    try:
        told = client.post("/plan", {"jobs": jobs})["items"]
    except Refused as refused:
        raise with_file(refused, files) from None
    show_planned(told, now_ms(), output)
    tell_of_batches(jobs, client)


def show_planned(told: list[dict[str, Any]], now: int, output: Output) -> None:
    """Prints what is planned for some jobs at a moment."""
    rows = [row_of(item, now) for item in told]
    emit(rows, [column for column in COLUMNS if column.key != "price" or any(row["price"] for row in rows)], output)


def row_of(item: dict[str, Any], now: int) -> dict[str, Any]:
    """What is planned for one job, for people as well."""
    others = msgspec.convert(item.get("makes_room", []), list[Other])
    return {
        **item,
        "where": where(item["nodes"]),
        "starts": _starts(item.get("expected_start_ms"), bool(others), now),
        "leaving": leaving_words(others, now),
        "price": (item.get("all_replicas") or {}).get("says"),
    }


def _starts(at_ms: int | None, others_leave: bool, now: int) -> str | None:
    """When it starts. Jobs that must end first are told to now, and have their grace."""
    if at_ms is None:
        return None
    soon = "once they have ended" if others_leave else "now"
    return soon if at_ms <= now + 1000 else f"in {span(at_ms - now)}"
