"""`--at`: jobs, queues and reasons as they were, of a journal without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.cli.main import cli, run
from phalanx.cluster.formats.native import read_cluster
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.state import State
from phalanx.engine.turn import turn
from phalanx.protocol.event import AttemptEnded, ClusterDefined, Done, Outcome
from phalanx.protocol.event import JobSubmitted as Submitted
from phalanx.workload.formats.native import read_job

CLUSTER = (
    "nodes: [{name: n0, gpus: 8}]\nqueues:\n- {name: red, deserved: {gpus: 4}}\n- {name: blue, deserved: {gpus: 4}}\n"
)
AT_MS = 1_700_000_000_000
MINUTE_MS = 60_000


def job(number: str, queue: str) -> Submitted:
    text = f"name: job-{number}\nqueue: {queue}\ngpus: 8\nduration: 1h\ncommand: 'true'\n"
    return Submitted(read_job(text, "job", number, AT_MS))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Job 1 runs from the first minute to the tenth, job 2 is submitted in the second and waits for it."""
    state, kept = State(), Journal()
    cluster = read_cluster(CLUSTER, "cluster")
    turn(state, kept, [ClusterDefined(cluster, policy="fifo")], AT_MS)
    started = turn(state, kept, [job("1", "red")], AT_MS + MINUTE_MS)
    turn(state, kept, [Done(action.id) for action in started.actions], AT_MS + MINUTE_MS)
    turn(state, kept, [job("2", "blue")], AT_MS + 2 * MINUTE_MS)
    turn(state, kept, [AttemptEnded("1", 1, Outcome.SUCCEEDED)], AT_MS + 10 * MINUTE_MS)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"\n".join(kept.lines()) + b"\n")
    return path


def told(capfd: pytest.CaptureFixture[str], *arguments: str) -> object:
    assert run(cli, [*arguments, "-o", "json"]) == 0, capfd.readouterr().err
    return json.loads(capfd.readouterr().out)


def test_jobs_and_queues_are_listed_as_they_were(journal: Path, capfd: pytest.CaptureFixture[str]) -> None:
    states = {}
    for minutes in (9, 7, 0):
        listed = told(capfd, "jobs", "--saved", str(journal), "--at", f"{minutes}m", "--all")
        assert isinstance(listed, list)
        states[minutes] = {each["id"]: each["state"] for each in listed}
    # The last record is of the tenth minute.
    assert states[9] == {"1": "running"}
    assert states[7] == {"1": "running", "2": "waiting"}
    assert states[0]["2"] == "starting"
    queues = told(capfd, "queues", "--state", str(journal), "--at", "7m")
    assert isinstance(queues, list)
    assert {each["name"]: (each["gpus_used"], each["gpus_waiting"]) for each in queues} == {
        "red": (8, 0),
        "blue": (0, 8),
    }


def test_why_says_what_held_then(journal: Path, capfd: pytest.CaptureFixture[str]) -> None:
    then = told(capfd, "why", "2", "--state", str(journal), "--at", "2023-11-14T22:16:20Z", "--no-forecast")
    assert isinstance(then, dict)
    assert (then["state"], then["reason"] is not None) == ("waiting", True)
    now = told(capfd, "why", "2", "--state", str(journal), "--no-forecast")
    assert isinstance(now, dict)
    assert now["state"] == "starting"


def test_a_moment_before_the_first_record_is_refused_and_one_after_the_last_is_as_of_it(
    journal: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, ["jobs", "--saved", str(journal), "--at", "2h"]) == 1
    assert "is before its first record" in capfd.readouterr().err
    later = told(capfd, "jobs", "--saved", str(journal), "--at", "2023-11-15T22:00:00Z")
    assert isinstance(later, list)
    assert [each["id"] for each in later] == ["2"]
    assert run(cli, ["jobs", "--saved", str(journal), "--at", "yesterday"]) == 2


def test_a_journal_that_is_damaged_or_another_file_says_so(
    journal: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines)[:-20])
    assert run(cli, ["jobs", "--saved", str(journal), "--at", "1m"]) == 0
    assert "was not written to its end" in capfd.readouterr().err
    journal.write_bytes(lines[0] + b"{}\n" + b"".join(lines[1:]))
    assert run(cli, ["jobs", "--saved", str(journal), "--at", "1m"]) == 1
    assert "journal line 2" in capfd.readouterr().err
    (tmp_path / "empty").write_bytes(b"")
    assert run(cli, ["queues", "--state", str(tmp_path / "empty"), "--at", "1m"]) == 1
    assert "expected a journal" in capfd.readouterr().err
