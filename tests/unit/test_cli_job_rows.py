from __future__ import annotations

from typing import Any

import pytest

from phalanx.cli.job_rows import COLUMNS, columns_of, job_row
from phalanx.cli.output import emit


def a_row(job: str, preemptions: int = 0, **more: Any) -> dict[str, Any]:
    times = {"submitted_ms": 0, "started_ms": None, "running_since_ms": None, "executed_before_ms": 0}
    known = {"name": "", "state": "waiting", "queue": "a", "user": "ada", "gpus": 1, "reason": "gpus"}
    return job_row({"id": job, **known, **times, "preemptions": preemptions, **more})


def shown(capsys: pytest.CaptureFixture[str], *rows: dict[str, Any]) -> str:
    emit(rows, columns_of(rows), "table")
    return capsys.readouterr().out


def test_a_list_tells_how_often_jobs_were_preempted_where_one_was(capsys: pytest.CaptureFixture[str]) -> None:
    table = shown(capsys, a_row("7", preemptions=3), a_row("8"))
    assert "PREEMPTIONS" in table.splitlines()[0]
    assert " 3" in table.splitlines()[1]


def test_a_list_of_jobs_that_were_never_preempted_has_no_column_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "PREEMPTIONS" not in shown(capsys, a_row("7"), a_row("8"))
    assert columns_of([a_row("7")]) == list(COLUMNS)
