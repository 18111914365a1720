"""What `phalanx when` says of the end of a job, and what is said of a time that is none."""

from __future__ import annotations

import click
import pytest

from phalanx.cli.expected import times_of
from phalanx.cli.when import moment

STARTED = {"started_ms": None, "expected_end_ms": None, "ended_ms": None}


@pytest.mark.parametrize(
    ("state", "ends"),
    [
        ("starting", "unknown: it does not run yet"),
        ("running", "unknown: the job says neither duration nor max_run"),
    ],
)
def test_only_of_a_job_that_runs_is_it_said_that_it_names_no_end(state: str, ends: str) -> None:
    assert times_of({**STARTED, "state": state})["ends"] == ends


def test_a_time_that_is_none_is_told_with_its_option() -> None:
    with pytest.raises(click.UsageError, match=r"^--by soon: expected a time such as "):
        moment("soon", "--by")
