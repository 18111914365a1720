"""The jobs of a saved state, or of a past moment."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from phalanx.cli.job_rows import job_row
from phalanx.cli.past_state import state_then
from phalanx.cli.saved import state_from
from phalanx.cli.when import span
from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.state import State
from phalanx.server.fresh import fresh_item
from phalanx.server.view import rows

OF_ROW = (
    "started_ms",
    "running_since_ms",
    "executed_before_ms",
    "executed_before_gpu_ms",
    "ended_ms",
    "expected_end_ms",
    "attempts",
    "preemptions",
    "end_reason",
)
PENDING = "pending"


class Filters(NamedTuple):
    """Which jobs are wanted; what is empty lets all pass."""

    states: str
    queue: str
    user: str
    name: str
    kind: str
    label: str
    array_of: str

    def take(self, item: dict[str, Any]) -> bool:
        """Whether a job is among them."""
        states = ["waiting" if each == PENDING else each for each in self.states.split(",") if each]
        key, _, value = self.label.partition("=")
        return (
            (not states or item["state"] in states)
            and (not self.queue or item["queue"] == self.queue or item["queue"].startswith(f"{self.queue}/"))
            and self.user in ("", item["user"])
            and self.name in ("", item["name"])
            and self.kind in ("", item["kind"])
            and (not key or item["labels"].get(key) == value)
            and self.array_of in ("", item["array_of"])
        )


def jobs_saved(state_path: str | None, at: str | None, filters: Filters, limit: int) -> list[dict[str, Any]]:
    """The newest jobs of a state that the filters take, as rows."""
    state = state_then(state_path, at) if at is not None else state_from(state_path or "")
    newest = sorted(state.jobs.values(), key=lambda record: -record.number)
    found = [item for record in newest if filters.take(item := _item(state, record))]
    return [_row(item, state.now) for item in found[:limit]]


def _item(state: State, record: JobRecord) -> dict[str, Any]:
    row = rows.job_row(record, "", state.seq)
    known = {key: row[key] for key in OF_ROW}
    return {**fresh_item(state, record), **known, "nodes": msgspec.json.decode(row["nodes"])}


def _row(item: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """Times are counted from the moment of the state."""
    since_ms = item["running_since_ms"]
    ran_ms = item["executed_before_ms"] + (now_ms - since_ms if since_ms is not None else 0)
    times = {"age": span((item["ended_ms"] or now_ms) - item["submitted_ms"]), "ran": span(ran_ms) if ran_ms else None}
    return {**job_row(item), **times}
