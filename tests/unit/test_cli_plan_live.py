"""What `phalanx plan` says of jobs that others would have to make room for on the live server."""

from __future__ import annotations

from typing import Any

from phalanx.cli.plan_live import row_of
from phalanx.cli.when import now_ms

MINUTE_MS = 60_000


def item(*others: dict[str, Any]) -> dict[str, Any]:
    return {"nodes": ["n0"], "expected_start_ms": now_ms(), "makes_room": list(others)}


def test_who_makes_room_is_told_with_what_it_has_and_when_it_would_end() -> None:
    known = {"job": "4", "queue": "a", "gpus": 8, "expected_end_ms": now_ms() + 90 * MINUTE_MS + 500, "attempt": 1}
    hidden = {"job": "", "queue": "b", "gpus": 1, "expected_end_ms": None, "attempt": 0}
    row = row_of(item(known, hidden), now_ms())
    assert row["leaving"] == "job 4 of queue a (8 GPUs, ends in 1h 30m), a job of queue b (1 GPU)"
    assert row["starts"] == "once they have ended"


def test_who_needs_nobody_to_leave_starts_now() -> None:
    row = row_of(item(), now_ms())
    assert (row["leaving"], row["starts"]) == ("", "now")
