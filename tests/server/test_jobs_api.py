"""Jobs over HTTP: submitted, listed, changed, and asked about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from running import Server, eventually


def test_a_job_that_is_submitted_starts_and_ends(rehearsal: Server) -> None:
    job = rehearsal.submit(name="quick", gpus=1, duration="100ms")
    assert job["state"] == "waiting"
    assert job["user"] == "admin"
    done = rehearsal.wait(job["id"], "succeeded")
    assert done["started_ms"] >= done["submitted_ms"]
    assert done["ended_ms"] - done["started_ms"] >= 100
    attempts = rehearsal.client.get(f"/jobs/{job['id']}/attempts").json()["items"]
    assert [(each["number"], each["phase"], each["outcome"]) for each in attempts] == [(1, "ended", "succeeded")]


def test_a_job_file_may_be_yaml(rehearsal: Server) -> None:
    text = "name: yaml-job\ngpus: 1\ncommand: [sleep, '1']\nduration: 50ms\n"
    response = rehearsal.client.post("/jobs", content=text, headers={"Content-Type": "application/yaml"})
    assert response.status_code == 201
    assert rehearsal.job("yaml-job")["spec"]["execution"]["command"] == ["sleep", "1"]


def test_what_is_wrong_with_a_job_file_is_told_with_its_line_and_key(rehearsal: Server) -> None:
    text = "gpus: 1\nqueeu: a\n"
    response = rehearsal.client.post("/jobs", content=text, headers={"Content-Type": "application/yaml"})
    assert response.status_code == 422
    assert response.json()["code"] == "invalid"
    assert "queeu" in response.json()["message"]
    assert response.json()["detail"]["line"] == 2


def test_an_array_is_submitted_member_by_member(rehearsal: Server) -> None:
    job = rehearsal.submit(name="sweep", gpus=1, array="0-2", duration="50ms")
    base = job["id"].partition(".")[0]
    assert job["members"] == [f"{base}.0", f"{base}.1", f"{base}.2"]
    listed = rehearsal.client.get("/jobs", params={"array_of": base, "order": "oldest"}).json()["items"]
    assert [each["id"] for each in listed] == job["members"]


def test_an_array_is_cancelled_as_a_whole_and_no_member_starts_because_another_ended(rehearsal: Server) -> None:
    name = f"array-{uuid4()}"
    job = rehearsal.submit(name=name, gpus=1, array="0-4%1", duration="1h")
    base, members = job["array_of"], job["members"]
    rehearsal.wait(members[0], "running")
    assert rehearsal.client.post(f"/jobs/{base}:hold").json()["members"] == members
    assert rehearsal.job(members[1])["reason"] == "held"
    assert rehearsal.client.post(f"/jobs/{name}:release").json()["members"] == members
    assert rehearsal.client.post(f"/jobs/{base}:cancel").json()["members"] == members
    assert [rehearsal.wait(member, "cancelled")["attempts"] for member in members] == [1, 0, 0, 0, 0]
    again = rehearsal.client.post(f"/jobs/{base}:cancel")
    assert (again.status_code, again.json()["code"]) == (409, "conflict")


def test_a_job_waits_for_others_by_name_and_for_all_members_of_an_array(rehearsal: Server) -> None:
    first = rehearsal.submit(name=f"first-{uuid4()}", gpus=1, begin="+1h")
    array = rehearsal.submit(gpus=1, array="0-1", begin="+1h")
    both = [{"job": first["name"]}, {"job": array["array_of"], "on": "end"}]
    waiting = rehearsal.submit(gpus=1, after=both)
    spec = rehearsal.job(waiting["id"])["spec"]
    assert [each["job"] for each in spec["after"]] == [first["id"], *array["members"]]
    assert rehearsal.job(waiting["id"])["reason"] == "dependency"
    unknown = rehearsal.client.post("/jobs", json={"command": "true", "gpus": 1, "after": [{"job": "nobody's"}]})
    assert (unknown.status_code, unknown.json()["message"]) == (404, 'there is no job "nobody\'s"')
    rehearsal.client.post(f"/jobs/{waiting['id']}:cancel").raise_for_status()
    for each in (first["id"], array["array_of"]):
        rehearsal.client.post(f"/jobs/{each}:cancel").raise_for_status()


def test_a_dependency_that_is_not_met_ends_the_job_and_those_behind_it_with_the_reason(rehearsal: Server) -> None:
    first = rehearsal.submit(gpus=1)["id"]
    second = rehearsal.submit(gpus=1, after=[first])["id"]
    third = rehearsal.submit(gpus=1, after=[{"job": second, "on": "failure"}])["id"]
    kept = rehearsal.submit(gpus=1, after=[{"job": first, "otherwise": "keep"}])["id"]
    freed = rehearsal.submit(gpus=1, after=[{"job": first, "on": "end"}])["id"]
    rehearsal.client.post(f"/jobs/{first}:cancel").raise_for_status()
    rehearsal.wait(first, "cancelled")
    rehearsal.wait(third, "cancelled")
    assert rehearsal.job(second)["end_reason"] == f"dependency not met: job {first} was cancelled, expected success"
    assert rehearsal.job(third)["end_reason"] == f"dependency not met: job {second} was cancelled, expected failure"
    assert (rehearsal.job(kept)["state"], rehearsal.job(kept)["reason"]) == ("waiting", "dependency_failed")
    rehearsal.wait(freed, "running")
    late = rehearsal.submit(gpus=1, after=[first])["id"]
    rehearsal.wait(late, "cancelled")
    for job in (kept, freed):
        rehearsal.client.post(f"/jobs/{job}:cancel").raise_for_status()
        rehearsal.wait(job, "cancelled")


def test_who_asks_for_an_array_as_if_it_were_one_job_hears_of_its_members(rehearsal: Server) -> None:
    base = rehearsal.submit(gpus=1, array="0-2", duration="50ms")["array_of"]
    answer = rehearsal.client.get(f"/jobs/{base}")
    assert answer.status_code == 409
    assert answer.json()["detail"]["ids"] == [f"{base}.0", f"{base}.1", f"{base}.2"]


def test_a_user_hears_who_else_cancelled_a_job(rehearsal: Server) -> None:
    rehearsal.client.post("/users", json={"name": "another"}).raise_for_status()
    rehearsal.client.put("/users/another/roles/-", json={"role": "member"}).raise_for_status()
    for asked in ({"gpus": 1}, {"gpus": 1, "array": "0-1"}):
        theirs = rehearsal.submit(**asked, user="another", duration="1h")
        rehearsal.client.post(f"/jobs/{theirs['array_of'] or theirs['id']}:cancel").raise_for_status()
        assert rehearsal.wait(theirs["id"], "cancelled")["end_reason"] == "cancelled by admin"
    mine = rehearsal.submit(gpus=1, duration="1h")
    rehearsal.client.post(f"/jobs/{mine['id']}:cancel").raise_for_status()
    assert rehearsal.wait(mine["id"], "cancelled")["end_reason"] == "cancelled"


def test_a_plan_tells_of_every_member_of_an_array_and_why_a_job_never_fits(rehearsal: Server) -> None:
    files = ["gpus: 1\narray: 0-2%2\nduration: 1h\ncommand: 'true'\n", {"gpus": 64, "command": "true", "name": "huge"}]
    *members, huge = rehearsal.client.post("/plan", json={"jobs": files}).raise_for_status().json()["items"]
    assert [(each["job"], each["why"]) for each in members] == [
        ("plan-1.0", ""),
        ("plan-1.1", ""),
        ("plan-1.2", "array limit"),
    ]
    assert members[2]["expected_start_ms"] >= members[0]["expected_start_ms"] + 3_600_000
    assert (huge["name"], huge["expected_start_ms"]) == ("huge", None)
    assert huge["why"].startswith("no part of this cluster could ever hold it")
    wrong = rehearsal.client.post("/plan", json={"jobs": ["gpus: 1\ngpuz: 2\n"]})
    assert (wrong.status_code, wrong.json()["detail"]) == (422, {"index": 0, "line": 2, "key": "gpuz"})


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"gpus": 64}, "never_fits"),
        ({"gang": [{"replicas": 2, "gpus": 1}], "topology": {"required": "node"}}, "undecided"),
        ({"gang": [{"replicas": 65, "gpus": 1}], "topology": {"required": "node"}}, "never_fits"),
    ],
)
def test_who_submits_is_told_at_once_that_a_job_never_fits(
    rehearsal: Server, asked: dict[str, Any], reason: str
) -> None:
    taken = rehearsal.submit(**asked, duration="1h")
    assert (taken["state"], taken["reason"]) == ("waiting", reason)
    told = rehearsal.client.get(f"/jobs/{taken['id']}/why").json()
    if reason == "never_fits":
        assert (told["reason"], told["forecast"], told["expected_start_ms"]) == (reason, None, None)
    rehearsal.client.post(f"/jobs/{taken['id']}:cancel").raise_for_status()


def test_a_job_that_is_over_has_no_forecast_and_says_how_it_ended(rehearsal: Server) -> None:
    job = rehearsal.submit(gpus=1, duration="1h")
    rehearsal.client.post(f"/jobs/{job['id']}:cancel").raise_for_status()
    rehearsal.wait(job["id"], "cancelled")
    told = rehearsal.client.get(f"/jobs/{job['id']}/why").json()
    assert (told["why"], told["reason"], told["forecast"]) == ("it was cancelled", None, None)


def test_the_array_of_another_tenant_cannot_be_cancelled(rehearsal: Server) -> None:
    user = f"member-{uuid4()}"
    rehearsal.client.post("/users", json={"name": user, "password": "a long password"}).raise_for_status()
    rehearsal.client.put(f"/users/{user}/roles/default", json={"role": "member"}).raise_for_status()
    token = rehearsal.client.post("/login", json={"user": user, "password": "a long password"}).json()["token"]
    job = rehearsal.submit(gpus=1, array="0-1", duration="1h")
    refused = rehearsal.as_user(token).post(f"/jobs/{job['array_of']}:cancel")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert rehearsal.client.post(f"/jobs/{job['array_of']}:cancel").status_code == 200


def test_a_batch_is_taken_as_a_whole_or_not_at_all(rehearsal: Server) -> None:
    name = f"batch-{uuid4()}"
    good = {"name": name, "gpus": 1, "command": "true", "duration": "50ms"}
    response = rehearsal.client.post("/jobs:batch", json={"jobs": [good, {**good, "gpus": -1}]})
    assert response.status_code == 422
    assert response.json()["detail"]["index"] == 1
    assert rehearsal.client.get("/jobs", params={"name": name}).json()["items"] == []
    response = rehearsal.client.post("/jobs:batch", json={"jobs": [good] * 3})
    assert response.status_code == 201
    assert len(rehearsal.client.get("/jobs", params={"name": name}).json()["items"]) == 3


def test_a_batch_that_the_engine_refuses_changes_nothing(rehearsal: Server) -> None:
    name = f"batch-{uuid4()}"
    good = {"name": name, "gpus": 1, "command": "true"}
    response = rehearsal.client.post("/jobs:batch", json={"jobs": [good, {**good, "after": [{"job": "99999999"}]}]})
    assert response.status_code == 422
    assert response.json()["detail"] == {"index": 1}
    assert rehearsal.client.get("/jobs", params={"name": name}).json()["items"] == []


def test_the_jobs_of_a_batch_may_wait_for_one_another_whatever_their_order(rehearsal: Server) -> None:
    train, prepare = f"train-{uuid4()}", f"prepare-{uuid4()}"
    job = {"gpus": 1, "command": "true", "duration": "1h"}
    text = f"name: {prepare}\ngpus: 1\ncommand: 'true'\nduration: 1h\narray: 0-1"
    response = rehearsal.client.post("/jobs:batch", json={"jobs": [{**job, "name": train, "after": [prepare]}, text]})
    assert response.status_code == 201
    first, *members = response.json()["ids"]
    assert members == [f"{int(first) + 1}.0", f"{int(first) + 1}.1"]
    shown = rehearsal.client.get(f"/jobs/{first}").json()
    assert (shown["name"], shown["state"]) == (train, "waiting")
    assert [each["job"] for each in shown["spec"]["after"]] == members
    for each in (first, *members):
        rehearsal.client.post(f"/jobs/{each}:cancel").raise_for_status()


def test_a_circle_of_dependencies_in_a_batch_is_shown_and_nothing_changes(rehearsal: Server) -> None:
    names = [f"{each}-{uuid4()}" for each in "axy"]
    a, x, y = names
    job = {"gpus": 1, "command": "true"}
    batch = [{**job, "name": a}, {**job, "name": x, "after": [a, y]}, {**job, "name": y, "after": [x]}]
    response = rehearsal.client.post("/jobs:batch", json={"jobs": batch})
    assert (response.status_code, response.json()["detail"]) == (422, {"index": 1})
    assert response.json()["message"].endswith(f"none could ever start: {x} -> {y} -> {x}")
    assert all(rehearsal.client.get("/jobs", params={"name": name}).json()["items"] == [] for name in names)
    planned = rehearsal.client.post("/plan", json={"jobs": batch})
    assert (planned.status_code, planned.json()["message"]) == (422, response.json()["message"])


@pytest.mark.parametrize("path", ["/jobs", "/jobs:batch", "/plan"])
def test_a_job_that_waits_for_itself_is_refused(rehearsal: Server, path: str) -> None:
    name = f"own-{uuid4()}"
    job = {"name": name, "gpus": 1, "command": "true", "after": [name]}
    response = rehearsal.client.post(path, json=job if path == "/jobs" else {"jobs": [job]})
    assert (response.status_code, response.json()["message"]) == (422, f"job {name} waits for itself: {name} -> {name}")


def test_a_job_may_wait_for_an_earlier_one_of_its_name(rehearsal: Server) -> None:
    name = f"nightly-{uuid4()}"
    job = {"name": name, "gpus": 1, "command": "true", "duration": "1h"}
    first = rehearsal.client.post("/jobs", json=job).json()["id"]
    second = rehearsal.client.post("/jobs", json={**job, "after": [name]}).json()["id"]
    after = rehearsal.client.get(f"/jobs/{second}").json()["spec"]["after"]
    assert [each["job"] for each in after] == [first]
    for each in (second, first):
        rehearsal.client.post(f"/jobs/{each}:cancel").raise_for_status()


def test_a_repeated_request_is_answered_as_the_first_and_done_once(rehearsal: Server) -> None:
    name, key = f"once-{uuid4()}", str(uuid4())
    body = {"name": name, "gpus": 1, "command": "true", "duration": "10s"}
    first, second = (rehearsal.client.post("/jobs", json=body, headers={"Idempotency-Key": key}) for _ in range(2))
    assert first.status_code == second.status_code == 201
    assert first.json()["id"] == second.json()["id"]
    assert "Idempotent-Replay" not in first.headers
    assert second.headers["Idempotent-Replay"] == "true"
    assert len(rehearsal.client.get("/jobs", params={"name": name}).json()["items"]) == 1
    other = rehearsal.client.post("/jobs", json={**body, "gpus": 2}, headers={"Idempotency-Key": key})
    assert other.status_code == 409
    rehearsal.client.post(f"/jobs/{first.json()['id']}:cancel").raise_for_status()


def test_a_job_is_cancelled_once(rehearsal: Server) -> None:
    job = rehearsal.submit(gpus=1)
    rehearsal.wait(job["id"], "running")
    assert rehearsal.client.post(f"/jobs/{job['id']}:cancel").status_code == 200
    rehearsal.wait(job["id"], "cancelled")
    again = rehearsal.client.post(f"/jobs/{job['id']}:cancel")
    assert again.status_code == 409
    assert "already been cancelled" in again.json()["message"]


def test_a_held_job_waits_until_it_is_released(rehearsal: Server) -> None:
    job = rehearsal.submit(gpus=1, duration="50ms", begin="+1h")
    held = rehearsal.client.post(f"/jobs/{job['id']}:hold").json()
    assert (held["held"], held["reason"]) == (True, "held")
    released = rehearsal.client.post(f"/jobs/{job['id']}:release").json()
    assert (released["held"], released["reason"]) == (False, "begin_time")
    rehearsal.client.post(f"/jobs/{job['id']}:cancel").raise_for_status()


def test_a_change_by_somebody_with_old_news_is_refused(rehearsal: Server) -> None:
    job = rehearsal.submit(gpus=1, begin="+1h")
    etag = rehearsal.client.get(f"/jobs/{job['id']}").headers["ETag"]
    held = rehearsal.client.post(f"/jobs/{job['id']}:hold", headers={"If-Match": etag})
    assert held.status_code == 200
    stale = rehearsal.client.post(f"/jobs/{job['id']}:release", headers={"If-Match": etag})
    assert stale.status_code == 412
    fresh = rehearsal.client.post(f"/jobs/{job['id']}:cancel", headers={"If-Match": held.headers["ETag"]})
    assert fresh.status_code == 200


def test_names_work_when_they_are_unique(rehearsal: Server) -> None:
    name = f"twin-{uuid4()}"
    one = rehearsal.submit(name=name, gpus=1)
    assert rehearsal.job(name)["id"] == one["id"]
    two = rehearsal.submit(name=name, gpus=1)
    response = rehearsal.client.get(f"/jobs/{name}")
    assert response.status_code == 409
    assert response.json()["detail"]["ids"] == [one["id"], two["id"]]
    for job in (one, two):
        rehearsal.client.post(f"/jobs/{job['id']}:cancel").raise_for_status()


def test_a_list_and_why_say_the_same_of_a_job_also_once_others_took_what_was_free(folder: Path) -> None:
    """6 of 8 GPUs are taken on each of two nodes: 4 are free, but not together. Then they are taken, too."""
    file = folder.with_suffix(".yaml")
    file.write_text("nodes: [{count: 2, name: n, gpus: 8}]\npolicy: priority\n")
    server = Server(folder, "--backend", "rehearsal", "--cluster", str(file)).start()
    try:
        large = [server.submit(gpus=6, preemptible=False, duration="1h") for _ in range(2)]
        for job in large:
            server.wait(job["id"], "running")
        waits = server.submit(gpus=4, duration="1h")["id"]
        eventually(lambda: server.job(waits)["reason"] == "fragmented")
        for job in [server.submit(gpus=2, preemptible=False, duration="1h", priority=9) for _ in range(2)]:
            server.wait(job["id"], "running")
        eventually(lambda: server.job(waits)["reason"] == "gpus")
        assert server.client.get(f"/jobs/{waits}/why").json()["reason"] == "gpus"
        server.client.post("/nodes/n0:drain", json={}).raise_for_status()
        server.client.post("/nodes/n0:undrain").raise_for_status()
        eventually(
            lambda: server.job(waits)["reason"] == server.client.get(f"/jobs/{waits}/why").json()["reason"] == "gpus"
        )
    finally:
        server.stop()


def test_a_label_that_the_policy_does_not_know_is_refused_and_nothing_is_written(folder: Path) -> None:
    file = folder.with_suffix(".yaml")
    file.write_text("nodes: [{count: 1, name: n, gpus: 8}]\npolicy: singularity\n")
    server = Server(folder, "--backend", "rehearsal", "--cluster", str(file)).start()
    try:
        response = server.client.post("/jobs", json={"gpus": 1, "labels": {"tier": "premum"}})
        assert response.status_code == 422, response.text
        assert "label tier is 'premum'" in response.json()["message"]
        assert server.client.get("/jobs").json()["items"] == []
        server.submit(gpus=1, labels={"tier": "premium"}, duration="1h")
    finally:
        server.stop()


def test_what_is_not_there_is_not_found(rehearsal: Server) -> None:
    for path in ("/jobs/99999999", "/jobs/nobody", "/jobs/1/nothing", "/nodes/nowhere", "/nothing"):
        response = rehearsal.client.get(path)
        assert response.status_code == 404
        assert response.json()["code"] == "not_found"


def test_pages_follow_one_another_without_a_gap(rehearsal: Server) -> None:
    name = f"paged-{uuid4()}"
    jobs = [{"name": name, "gpus": 1, "command": "true", "duration": "20ms"}] * 25
    ids = rehearsal.client.post("/jobs:batch", json={"jobs": jobs}).json()["ids"]
    found: list[str] = []
    parameters: dict[str, Any] = {"name": name, "limit": 10}
    while True:
        page = rehearsal.client.get("/jobs", params=parameters).json()
        found += [each["id"] for each in page["items"]]
        if page["next"] is None:
            break
        parameters["cursor"] = page["next"]
    assert found == ids[::-1]


def test_lists_are_filtered(rehearsal: Server) -> None:
    label = uuid4().hex
    rehearsal.with_queues("research", "research/llm", "research-2")
    jobs = [
        {"gpus": 1, "command": "true", "queue": "research/llm", "labels": {"t": label}, "begin": "+1h"},
        {"gpus": 1, "command": "true", "queue": "research-2", "labels": {"t": label}, "begin": "+1h"},
        {"gpus": 1, "command": "true", "queue": "research", "labels": {"t": label}, "begin": "+1h", "kind": "service"},
    ]
    ids = rehearsal.client.post("/jobs:batch", json={"jobs": jobs}).json()["ids"]

    def found(**filters: str) -> list[str]:
        listed = rehearsal.client.get("/jobs", params={"label": f"t={label}", "order": "oldest", **filters}).json()
        return [each["id"] for each in listed["items"]]

    assert found() == ids
    assert found(queue="research") == [ids[0], ids[2]], "with all below, and not what only looks alike"
    assert found(kind="service") == [ids[2]]
    assert found(state="waiting", user="admin") == ids
    assert found(user="nobody") == []
    for job in ids:
        rehearsal.client.post(f"/jobs/{job}:cancel").raise_for_status()
    assert found(state="cancelled,running") == ids


@pytest.mark.parametrize("parameters", [{"state": "dancing"}, {"limit": 0}, {"limit": 1001}, {"label": "x"}])
def test_filters_that_make_no_sense_are_refused(rehearsal: Server, parameters: dict[str, Any]) -> None:
    assert rehearsal.client.get("/jobs", params=parameters).status_code == 422


@pytest.mark.parametrize("cursor", ["x", "djE6LTE", "????", "djE6OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk"])
def test_a_cursor_that_nobody_gave_is_refused(rehearsal: Server, cursor: str) -> None:
    assert rehearsal.client.get("/jobs", params={"cursor": cursor}).status_code == 400


def test_why_tells_what_a_job_lacks_and_when_it_will_start(rehearsal: Server) -> None:
    fill = [{"gang": [{"replicas": 4, "gpus": 8}], "command": "true", "duration": "1h", "name": "fill"}]
    wait = [{"gpus": 8, "command": "true", "duration": "1h", "name": "waits"}]
    filler, waiter = rehearsal.client.post("/jobs:batch", json={"jobs": fill + wait}).json()["ids"]
    rehearsal.wait(filler, "running")
    why = rehearsal.client.get(f"/jobs/{waiter}/why").json()
    assert why["reason"] == "gpus"
    assert (why["gpus_free"], why["gpus_needed"]) == (0, 8)
    changes = why["explanation"]["changes"]
    assert len(why["ways"]) == len(changes) > 0
    assert why["sooner"] == f"it would start now {why['ways'][0]}"
    started = rehearsal.job(filler)["started_ms"]
    assert abs(why["expected_start_ms"] - (started + 3_600_000)) < 10_000
    assert rehearsal.job(waiter)["reason"] == "gpus"
    planned = rehearsal.client.post("/plan", json={"jobs": [{"gpus": 1, "command": "true"}]}).json()["items"][0]
    assert planned["state"] == "waiting"
    assert planned["expected_start_ms"] > started
    futures = rehearsal.client.post(
        "/what-if", json={"jobs": [{"gpus": 8, "command": "true", "duration": "2h"}]}
    ).json()
    assert futures["changed"]["jobs"] == futures["base"]["jobs"] + 1
    assert futures["changed"]["makespan_s"] >= futures["base"]["makespan_s"]
    for job in (waiter, filler):
        rehearsal.client.post(f"/jobs/{job}:cancel").raise_for_status()
    rehearsal.wait(filler, "cancelled")


def test_a_job_is_asked_to_save_its_work_and_hears_of_its_end(rehearsal: Server) -> None:
    job = rehearsal.submit(gpus=1)
    rehearsal.wait(job["id"], "running")
    until = rehearsal.client.post(f"/jobs/{job['id']}:checkpoint", json={"within_s": 60}).json()["until_ms"]
    token = attempt_token_of(rehearsal, job["id"])
    client = rehearsal.as_user(token)
    report = {"step": 10, "durable_step": 5, "samples_per_s": 2.5, "metrics": {"loss": 0.5}}
    told = client.post(f"/jobs/{job['id']}/progress", json=report).json()
    assert told == {"checkpoint_until_ms": until, "stop_at_ms": None}
    saved = client.post(f"/jobs/{job['id']}/progress", json={**report, "durable_step": 10}).json()
    said = rehearsal.job(job["id"])["progress"]
    assert (said["attempt"], said["step"], said["durable_step"]) == (1, report["step"], 10)
    assert saved["checkpoint_until_ms"] is None, "it has saved its work since"
    diverged = client.post(f"/jobs/{job['id']}/progress", json={**report, "metrics": {"loss": None}})
    assert diverged.status_code == 200
    rehearsal.client.post(f"/jobs/{job['id']}:cancel").raise_for_status()
    rehearsal.wait(job["id"], "cancelled")
    gone = client.post(f"/jobs/{job['id']}/progress", json=report)
    assert gone.status_code == 409


def attempt_token_of(server: Server, job: str) -> str:
    """The token of a job's first attempt, made as the loop makes it."""
    from phalanx.server.accounts.tokens import attempt_token
    from phalanx.server.store import settings
    from phalanx.server.store.database import open_reader, sqlite_url
    from phalanx.server.store.lineage import read_lineage

    with open_reader(sqlite_url(server.data / "phalanx.db")).reading() as connection:
        return attempt_token(settings.get(connection, "secret") or b"", job, 1, read_lineage(connection).present)


def test_nodes_can_be_drained_and_let_work_again(rehearsal: Server) -> None:
    drained = rehearsal.client.post("/nodes/n3:drain", json={"reason": "new fan"}).json()
    assert (drained["health"], drained["reason"]) == ("draining", "new fan")
    assert rehearsal.client.get("/nodes", params={"health": "draining"}).json()["items"][0]["name"] == "n3"
    assert rehearsal.client.post("/nodes/n3:undrain").json()["health"] == "healthy"
    assert rehearsal.client.post("/nodes/nowhere:drain").status_code == 404


def test_the_cluster_and_its_queues_are_shown(rehearsal: Server) -> None:
    cluster = rehearsal.client.get("/cluster").json()
    assert (cluster["nodes"], cluster["gpus"], cluster["policy"]) == (4, 32, "fifo")
    job = rehearsal.with_queues("seen/here").submit(queue="seen/here", gpus=2, begin="+1h")
    queues = {queue["name"]: queue for queue in rehearsal.client.get("/queues").json()["items"]}
    assert queues["seen/here"]["gpus_waiting"] == 2
    rehearsal.client.post(f"/jobs/{job['id']}:cancel").raise_for_status()
    assert rehearsal.client.get("/policy").json() == {"policy": "fifo", "placement": "topology"}
    assert rehearsal.client.get("/backends").json()["items"][0]["name"] == "rehearsal"
    assert rehearsal.client.get("/reservations").json()["items"] == []


def test_every_mutation_is_in_the_audit_log(rehearsal: Server) -> None:
    job = rehearsal.submit(gpus=1, begin="+1h")
    rehearsal.client.post(f"/jobs/{job['id']}:cancel").raise_for_status()
    rehearsal.client.post(f"/jobs/{job['id']}:cancel")
    entries = rehearsal.client.get("/audit", params={"target": job["id"]}).json()["items"]
    assert [(each["verb"], each["outcome"]) for each in entries] == [
        ("cancel job", "conflict"),
        ("cancel job", "done"),
        ("submit jobs", "done"),
    ]
    assert {(each["user"], each["origin"]) for each in entries} == {("admin", "127.0.0.1")}


def test_metrics_tell_of_jobs_gpus_and_the_loop(rehearsal: Server) -> None:
    def metrics() -> dict[str, float]:
        text = rehearsal.client.get(rehearsal.url + "/metrics").text
        lines = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    assert metrics()["phalanx_gpus"] == 32
    assert metrics()['phalanx_jobs{state="succeeded"}'] >= 0
    seq = metrics()["phalanx_journal_seq"]
    rehearsal.submit(gpus=1, duration="10ms")
    eventually(lambda: metrics()["phalanx_journal_seq"] > seq)
    assert metrics()['phalanx_loop_turn_seconds_bucket{le="+Inf"}'] > 0


def test_a_debug_bundle_can_be_replayed(rehearsal: Server) -> None:
    import io
    import zipfile

    from phalanx.engine.fold.snapshot import load
    from phalanx.engine.state.journal import Journal
    from phalanx.engine.turn import verify

    content = rehearsal.client.get("/debug/bundle").raise_for_status().content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        state = load(archive.read("snapshot.bin"))
        lines = [line for line in archive.read("journal.jsonl").splitlines() if line]
        everything = b"".join(archive.read(name) for name in archive.namelist())
    replayed = verify(Journal.read(lines[: state.seq + 1]))
    assert str(replayed.digest) == str(state.digest)
    secret = (rehearsal.data / "admin.token").read_text().strip()
    assert secret.encode() not in everything


def test_a_forecast_is_made_for_all_who_wait(folder: Path) -> None:
    """On a server of its own: where one was made a moment ago, the next follows half a minute later.

    Who looks ahead lets everybody else go first, also who asks: on a machine with three times as much to do as it can,
    it takes half a minute.
    """
    server = Server(folder, "--backend", "rehearsal", "--nodes", "4", "--gpus", "8").start()
    jobs = [
        {"gang": [{"replicas": 4, "gpus": 8}], "command": "true", "duration": "1h", "name": "fills all"},
        {"gpus": 8, "command": "true", "duration": "1h", "name": "waits long"},
    ]
    first, second = server.client.post("/jobs:batch", json={"jobs": jobs}).json()["ids"]
    server.wait(first, "running")
    told = eventually(lambda: server.client.get(f"/jobs/{second}/why").json()["forecast"], patience_s=120, every_s=0.5)
    assert told["runs"] > 1
    assert told["early_ms"] is None or told["early_ms"] > told["at_ms"]
    server.stop()


def test_a_queue_that_is_neither_configured_nor_named_by_a_role_nor_in_use_is_refused_with_those_there_are(
    rehearsal: Server,
) -> None:
    job = rehearsal.submit(gpus=1, begin="+1h")["id"]
    wrong = {"gpus": 1, "command": "true", "queue": "visoin"}
    # The server is shared: other tests may have made queues by now.
    said = re.compile(r"Unknown queue 'visoin' of the job.* Queues: .*default")
    for path, body in (
        ("/jobs", wrong),
        ("/jobs:batch", {"jobs": [wrong]}),
        ("/plan", {"jobs": [wrong]}),
        (f"/jobs/{job}:update", {"queue": "visoin"}),
    ):
        refused = rehearsal.client.post(path, json=body)
        assert refused.status_code == 422
        assert said.match(refused.json()["message"])
    rehearsal.with_queues("vision")
    assert {"default", "vision"} <= {each["name"] for each in rehearsal.client.get("/queues").json()["items"]}
    assert "did you mean 'vision'?" in rehearsal.client.post("/jobs", json=wrong).json()["message"]
    assert rehearsal.submit(**{**wrong, "queue": "vision", "begin": "+1h"})["queue"] == "vision"
