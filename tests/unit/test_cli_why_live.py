"""When a job of the server will start is told once: by the forecast, or by what jobs say."""

from __future__ import annotations

from typing import Any

from phalanx.cli.expected import expected_end
from phalanx.cli.why_live import expected_start

MINUTE_MS = 60_000
NOW_MS = 1_800_000_000_000


def told(**forecast: int | None) -> dict[str, Any]:
    """An answer of the server, with what is forecast in minutes from now."""
    made = {key: None if minutes is None else NOW_MS + minutes * MINUTE_MS for key, minutes in forecast.items()}
    made |= {"at_ms": NOW_MS - 2 * MINUTE_MS, "horizon_ms": 60 * MINUTE_MS, "runs": 19}
    moment = {"expected_start_ms": NOW_MS + 90 * MINUTE_MS, "expected_by": "said"}
    return {**moment, "forecast": made if forecast else None}


def test_a_forecast_goes_before_what_jobs_say() -> None:
    line = expected_start(told(early_ms=10, middle_ms=15, late_ms=20), NOW_MS)
    assert line is not None
    assert line.endswith("in 8 of 10 cases, told 2m ago (19 runs)")
    assert "as they say" not in line


def test_without_a_forecast_it_is_what_jobs_say() -> None:
    line = expected_start(told(), NOW_MS)
    assert line is not None
    assert line.endswith("if all take as long as they say")


def test_where_jobs_say_nothing_it_is_what_is_usual() -> None:
    line = expected_start(told() | {"expected_by": "usual"}, NOW_MS)
    assert line is not None
    assert line.endswith("if all take as long as is usual here")


def test_an_interval_of_one_moment_is_told_as_a_moment() -> None:
    line = expected_start(told(early_ms=10, middle_ms=10, late_ms=10), NOW_MS)
    assert line is not None
    assert " to " not in line


def test_what_a_start_depends_on_goes_before_any_moment() -> None:
    depends = {"starts_when": "not before the budget of queue a is raised"}
    assert expected_start(told(early_ms=10, middle_ms=15, late_ms=20) | depends, NOW_MS) == depends["starts_when"]


def test_a_forecast_that_is_over_is_not_told() -> None:
    line = expected_start(told(early_ms=-10, middle_ms=-5, late_ms=-1), NOW_MS)
    assert line is not None
    assert line.endswith("if all take as long as they say")


def test_what_lies_beyond_the_forecast_is_not_before_its_end() -> None:
    line = expected_start(told(early_ms=None, middle_ms=None, late_ms=None), NOW_MS)
    assert line is not None
    assert line.startswith("not before ")


def test_where_nobody_can_tell_how_late_it_is_told_by_when_half_of_the_runs_start_it() -> None:
    line = expected_start(told(early_ms=MINUTE_MS, middle_ms=2 * MINUTE_MS, late_ms=None), NOW_MS)
    assert line is not None
    assert line.startswith("not before ")
    assert "in half of" in line
    assert "how late is unknown" in line
    line = expected_start(told(early_ms=-1, middle_ms=2 * MINUTE_MS, late_ms=None), NOW_MS)
    assert line is not None
    assert line.startswith("any moment, in half of")


def test_where_too_many_others_start_before_it_is_told_up_to_when_was_looked() -> None:
    line = expected_start(
        {"expected_start_ms": None, "expected_not_before_ms": NOW_MS + MINUTE_MS, "forecast": None}, NOW_MS
    )
    assert line is not None
    assert line.startswith("not before ")
    assert line.endswith("many others start before it")


def test_where_nobody_can_tell_nothing_is_told() -> None:
    assert expected_start({"expected_start_ms": None, "forecast": None}, NOW_MS) is None


def test_where_looking_ahead_failed_that_is_told_instead() -> None:
    line = expected_start({"expected_start_ms": None, "forecast": None, "no_forecast": "a forked run failed"}, NOW_MS)
    assert line == "unknown: there is no forecast (a forked run failed)"


def test_a_running_job_ends_by_what_it_says_and_past_that_at_any_moment() -> None:
    assert expected_end(NOW_MS + MINUTE_MS, NOW_MS).endswith(", in 1m, by its own estimate")
    assert expected_end(NOW_MS - MINUTE_MS, NOW_MS) == "any moment: it has run 1m longer than it said"
    assert expected_end(None, NOW_MS) == "unknown: the job says neither duration nor max_run"
