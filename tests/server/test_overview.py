"""What pages show of the cluster as a whole: reasons in numbers, timelines of jobs and nodes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from running import Server, eventually

from phalanx.server.accounts.roles import Account, Grant, Role
from phalanx.server.api.overview.attention import failure_words
from phalanx.server.api.overview.reasons import aggregated
from phalanx.server.api.overview.timeline import segments_of
from phalanx.server.store.past import PhaseChange
from phalanx.server.store.reasons import Waiting


@pytest.mark.parametrize(
    ("exit_code", "end_reason", "words"),
    [
        (3, "exit 3: task 0 (worker) on n0", "it failed: exit 3: task 0 (worker) on n0"),
        (137, "signal SIGKILL: task 1 (worker) on n0", "it failed: signal SIGKILL: task 1 (worker) on n0"),
        (1, "its health check failed", "it failed with exit code 1: its health check failed"),
        (1, "", "it failed with exit code 1"),
        (None, "", "it failed"),
    ],
)
def test_the_text_of_a_failed_job_tells_its_code_once(exit_code: int | None, end_reason: str, words: str) -> None:
    assert failure_words(exit_code, end_reason) == words


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("overview") / "data"
    server = Server(data, "--backend", "rehearsal", "--nodes", "2", "--gpus", "4").start().with_queues("red", "blue")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def red(server: Server) -> httpx2.Client:
    """Somebody who may look at the queue `red` and no other."""
    server.client.post("/users", json={"name": "rosa"}).raise_for_status()
    server.client.put("/users/rosa/roles/red", json={"role": "viewer"}).raise_for_status()
    made = server.client.post("/tokens", json={"name": "t", "user": "rosa", "scopes": ["read"]}).json()
    return server.as_user(made["token"])


def timeline(server: Server, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.client.get(f"/jobs/{job}/timeline").raise_for_status().json()["segments"]
    return found


def test_a_timeline_follows_a_job_from_its_submission_to_its_end(server: Server) -> None:
    job = server.submit(gpus=1, duration="200ms", queue="red")["id"]
    server.wait(job, "succeeded")
    shown = timeline(server, job)
    assert [each["state"] for each in shown if each["state"] != "queued"] == ["starting", "running"]
    assert all(before["end_ms"] == after["start_ms"] for before, after in pairwise(shown))
    assert shown[-1]["end_ms"] == server.job(job)["ended_ms"]
    assert shown[-1]["text"] == "succeeded"
    assert shown[-1]["nodes"] == server.client.get(f"/jobs/{job}/attempts").json()["items"][0]["nodes"]


def test_a_job_that_waits_is_queued_with_its_reason_and_counted_by_it(server: Server, red: httpx2.Client) -> None:
    held = [server.submit(gpus=4, duration="10h", queue="red")["id"] for _ in range(2)]
    for job in held:
        server.wait(job, "running")
    waiting = server.submit(gpus=8, duration="1h", queue="blue", preemptible=False)["id"]
    later = server.submit(gpus=2, queue="red", begin="+10h")["id"]
    last = timeline(server, waiting)[-1]
    assert (last["state"], last["end_ms"]) == ("queued", None)
    reasons = eventually(lambda: found if len(found := counts(server.client)) == 2 else None)
    assert reasons["begin_time"]["example"] == later
    assert reasons["begin_time"]["gpus"] == 2
    other = next(reason for code, reason in reasons.items() if code != "begin_time")
    assert (other["jobs"], other["gpus"], other["example"]) == (1, 8, waiting)
    assert other["oldest_ms"] == server.job(waiting)["submitted_ms"]
    assert last["text"]
    assert list(counts(red)) == ["begin_time"], "what waits in other queues is not counted"
    for job in (waiting, later, *held):
        server.client.post(f"/jobs/{job}:cancel").raise_for_status()
        server.wait(job, "cancelled")
    assert eventually(lambda: counts(server.client) == {})
    states = [each["state"] for each in timeline(server, held[0])]
    assert states[-2:] == ["running", "stopping"] or states[-1] == "running"
    assert [each["state"] for each in timeline(server, waiting)] == ["queued"]


def counts(client: httpx2.Client) -> dict[str, dict[str, Any]]:
    return {each["code"]: each for each in client.get("/reasons").raise_for_status().json()["reasons"]}


def test_a_node_tells_which_attempts_it_had_and_how_healthy_it_was(server: Server, red: httpx2.Client) -> None:
    job = server.submit(gang=[{"replicas": 2, "gpus": 4}], duration="10h", queue="blue", name="wide")["id"]
    server.wait(job, "running")
    server.client.post("/nodes/n1:drain", json={"reason": "new fan"}).raise_for_status()
    server.client.post("/nodes/n1:undrain").raise_for_status()
    shown = server.client.get("/nodes/n1/timeline").raise_for_status().json()
    assert [(each["health"], each["reason"]) for each in shown["healths"]] == [
        ("healthy", ""),
        ("draining", "new fan"),
        ("healthy", ""),
    ]
    assert shown["healths"][-1]["end_ms"] is None
    last = shown["attempts"][-1]
    assert (last["job"], last["name"], last["state"], last["end_ms"]) == (job, "wide", "running", None)
    hidden = red.get("/nodes/n1/timeline").json()["attempts"][-1]
    assert (hidden["job"], hidden["name"], hidden["attempt"], hidden["outcome"]) == (None, "", None, None)
    assert hidden["start_ms"] == last["start_ms"]
    server.client.post(f"/jobs/{job}:cancel").raise_for_status()
    server.wait(job, "cancelled")
    over = server.client.get("/nodes/n0/timeline").json()["attempts"][-1]
    assert (over["job"], over["state"], over["outcome"]) == (job, "ended", "stopped")
    end_ms = over["end_ms"]
    later = {"since": end_ms + 1, "until": end_ms + 2}
    assert server.client.get("/nodes/n0/timeline", params=later).json()["attempts"] == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs/99999/timeline", 404),
        ("/nodes/nowhere/timeline", 404),
        ("/nodes/n0/timeline?since=2&until=1", 422),
        ("/nodes/n0/timeline?since=-1", 422),
        ("/nodes/n0/timeline?limit=0", 422),
    ],
)
def test_a_timeline_of_nothing_is_refused_in_one_line(server: Server, path: str, status: int) -> None:
    refused = server.client.get(path)
    assert refused.status_code == status
    assert "\n" not in refused.json()["message"]


ITEM = {"submitted_ms": 0, "ended_ms": None, "reason": None, "end_reason": ""}


def attempt(number: int, created_ms: int, started_ms: int | None, ended_ms: int | None, **more: Any) -> dict[str, Any]:
    usual = {"outcome": "stopped" if ended_ms else None, "reason": "", "nodes": ["n0"], "lost_ms": None}
    return {"number": number, "created_ms": created_ms, "started_ms": started_ms, "ended_ms": ended_ms, **usual, **more}


def drawn(item: dict[str, Any], *attempts: dict[str, Any], phases: tuple[PhaseChange, ...] = ()) -> list[Any]:
    return [(each["state"], each["start_ms"], each["end_ms"]) for each in segments_of(item, attempts, phases)]


def test_work_that_was_lost_is_drawn_at_the_end_of_its_attempt() -> None:
    lost = attempt(1, 10, 20, 100, lost_ms=30, reason="preempted")
    again = attempt(2, 150, 160, None)
    assert drawn(ITEM, lost, again) == [
        ("queued", 0, 10),
        ("starting", 10, 20),
        ("running", 20, 70),
        ("lost_work", 70, 100),
        ("queued", 100, 150),
        ("starting", 150, 160),
        ("running", 160, None),
    ]
    assert drawn(ITEM, attempt(1, 0, 20, 100, lost_ms=500))[:2] == [("starting", 0, 20), ("lost_work", 20, 100)]
    texts = [each["text"] for each in segments_of(ITEM, [lost], [])]
    assert texts[3] == "nothing of it was saved, stopped: preempted"


def test_a_suspended_attempt_goes_on_as_the_same() -> None:
    phases = (
        PhaseChange(1, 50, "suspending"),
        PhaseChange(1, 55, "suspended"),
        PhaseChange(1, 80, "resuming"),
        PhaseChange(1, 85, "running"),
        PhaseChange(1, 90, "stopping"),
    )
    shown = drawn(ITEM, attempt(1, 0, 10, None), phases=phases)
    assert shown == [
        ("starting", 0, 10),
        ("running", 10, 50),
        ("suspended", 50, 55),
        ("suspended", 55, 80),
        ("suspended", 80, 85),
        ("running", 85, 90),
        ("stopping", 90, None),
    ]


def test_an_attempt_that_never_ran_has_only_been_starting() -> None:
    assert drawn(ITEM, attempt(1, 0, None, 5)) == [("starting", 0, 5), ("queued", 5, None)]
    over = {**ITEM, "ended_ms": 9, "end_reason": "cancelled"}
    assert drawn(over) == [("queued", 0, 9)]


def test_reasons_of_many_queues_add_up_for_whoever_sees_them() -> None:
    groups = [Waiting("red/a", "gpus", 2, 16, 50, "7"), Waiting("red/b", "gpus", 1, 4, 40, "6")]
    groups.append(Waiting("blue", "quota", 9, 99, 1, "1"))
    red = aggregated(groups, Account("rosa", (Grant("red", Role.VIEWER),)))
    assert [(each["code"], each["jobs"], each["gpus"], each["oldest_ms"], each["example"]) for each in red] == [
        ("gpus", 3, 20, 40, "6")
    ]
    everything = aggregated(groups, Account("ada", (Grant("", Role.VIEWER),)))
    assert [each["code"] for each in everything] == ["quota", "gpus"]


def test_pages_of_the_journal_follow_one_another_and_show_each_account_its_own(
    server: Server, red: httpx2.Client
) -> None:
    job = server.submit(queue="red", begin="+10h", env={"KEY": "hidden"})["id"]
    server.submit(queue="blue", begin="+10h")
    newest = server.client.get("/journal", params={"limit": 1}).raise_for_status().json()
    older = server.client.get("/journal", params={"limit": 1, "cursor": newest["next"]}).json()
    numbers = [each["seq"] for each in (*newest["items"], *older["items"])]
    assert numbers == list(range(numbers[0], numbers[0] - 2, -1))
    own = server.client.get("/journal", params={"job": job}).json()
    assert [each["type"] for each in own["items"]] == ["JobSubmitted"]
    assert own["next"] is None
    seen = red.get("/journal", params={"type": "JobSubmitted", "limit": 500}).raise_for_status().json()["items"]
    assert {each["body"]["job"]["queue"] for each in seen} == {"red"}
    assert "hidden" not in str(seen)
    past = server.client.get("/journal", params={"until": own["items"][0]["now_ms"] - 1}).json()["items"]
    assert all(each["seq"] < own["items"][0]["seq"] for each in past)
    assert red.get("/scheduler").status_code == 403
