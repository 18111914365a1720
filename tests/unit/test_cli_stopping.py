"""What comes next for a job that was told to stop."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.cli.stopping import next_of


def a_job(state: str, attempts: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": "7", "state": state, "attempts": attempts, **more}


@pytest.mark.parametrize(
    ("verb", "job", "words"),
    [
        (
            "suspend",
            a_job("stopping", spec={"grace_ms": 30_000}),
            "suspended when its tasks have ended, at most 30s after SIGTERM",
        ),
        ("suspend", a_job("running"), "suspended when its tasks have ended"),
        ("suspend", a_job("waiting"), "it starts after `phalanx resume 7`"),
        ("requeue", a_job("stopping"), "pending again when its tasks have ended"),
        ("requeue", a_job("waiting"), "it starts again in its turn"),
        ("requeue", a_job("running", attempts=2), "it runs again, as attempt 2"),
        ("requeue", a_job("succeeded"), "nothing: it is over"),
    ],
)
def test_what_comes_next_follows_from_the_verb_and_the_state(verb: str, job: dict[str, Any], words: str) -> None:
    assert next_of(verb, job, attempts=1) == words
