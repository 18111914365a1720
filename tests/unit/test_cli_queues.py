"""`phalanx queues`: columns that are there only where somebody has something to show in them."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.cli.queues import show

HOUR_MS = 3_600_000


def queue(name: str, budget_gpu_ms: int | None = None, spent_gpu_ms: int | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "running": 1,
        "waiting": 0,
        "gpus_used": 4,
        "gpus_waiting": 0,
        "quota": {"budget_gpu_ms": budget_gpu_ms},
        "budget_spent_gpu_ms": spent_gpu_ms,
        "virtual_cluster": None,
    }


def test_what_is_used_of_a_budget_is_shown_in_gpu_hours(capsys: pytest.CaptureFixture[str]) -> None:
    show([queue("a", 10 * HOUR_MS, 5 * HOUR_MS // 2), queue("b")], "table")
    head, first, second = capsys.readouterr().out.splitlines()
    assert "GPU-HOURS" in head
    assert first.rstrip().endswith("2.5 of 10")
    assert "of 10" not in second


def test_without_budgets_there_is_no_such_column(capsys: pytest.CaptureFixture[str]) -> None:
    show([queue("a")], "table")
    assert "GPU-HOURS" not in capsys.readouterr().out


def test_while_nobody_can_tell_what_is_used_the_budget_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show([queue("a", 10 * HOUR_MS)], "table")
    assert "? of 10" in capsys.readouterr().out
