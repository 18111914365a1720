"""Streams: events as they happen, logs as they are printed, and commands beside running tasks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest
from running import Server, eventually
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect


def events_of(response: httpx2.Response) -> Iterator[dict[str, Any]]:
    """Server-sent events one by one."""
    event: dict[str, Any] = {}
    for line in response.iter_lines():
        if not line:
            if event:
                yield event
            event = {}
        elif not line.startswith(":"):
            key, _, value = line.partition(": ")
            event[key] = json.loads(value) if key == "data" else value


def test_events_come_as_they_happen_and_a_broken_stream_goes_on_where_it_broke(rehearsal: Server) -> None:
    heard: list[dict[str, Any]] = []
    ready = threading.Event()

    def listen() -> None:
        with rehearsal.client.stream("GET", "/events") as response:
            ready.set()
            for event in events_of(response):
                heard.append(event)
                if event["event"] == "AttemptEnded":
                    return

    listener = threading.Thread(target=listen)
    listener.start()
    ready.wait(30)
    job = rehearsal.submit(gpus=1, duration="50ms", name="heard")
    listener.join(60)
    types = [event["event"] for event in heard]
    assert types[0] == "JobSubmitted"
    assert types.count("Decision") >= 1
    assert heard[0]["data"]["job"]["id"] == job["id"]
    numbers = [int(event["id"]) for event in heard]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    again = rehearsal.client.get("/events", params={"follow": "false"}, headers={"Last-Event-ID": heard[1]["id"]})
    resumed = [line for line in again.text.splitlines() if line.startswith("id: ")]
    assert resumed[0] == f"id: {numbers[2]}"


def test_an_event_id_that_is_no_number_is_refused(rehearsal: Server) -> None:
    assert rehearsal.client.get("/events", headers={"Last-Event-ID": "x"}).status_code == 400


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("local")
    options = ("--backend", "local", "--simulate", "--nodes", "2", "--gpus", "8", "--request-timeout", "1")
    server = Server(folder / "data", *options).start()
    yield server
    server.stop()


def test_logs_are_followed_until_the_attempt_has_ended(local: Server) -> None:
    job = local.submit(gpus=1, command=["bash", "-c", "for i in 1 2 3; do echo line $i; sleep 0.1; done; echo err >&2"])
    eventually(lambda: local.job(job["id"])["attempts"])
    text = local.client.get(f"/jobs/{job['id']}/logs", params={"follow": "true"}).text
    assert text == "line 1\nline 2\nline 3\n"
    local.wait(job["id"], "succeeded")
    assert local.client.get(f"/jobs/{job['id']}/logs", params={"stream": "err"}).text == "err\n"
    tail = local.client.get(f"/jobs/{job['id']}/logs", params={"tail": 7})
    assert (tail.text, tail.headers["X-Phalanx-Offset"]) == ("line 3\n", "14")
    assert local.client.get(f"/jobs/{job['id']}/logs", params={"offset": 14}).text == "line 3\n"
    assert local.client.get(f"/jobs/{job['id']}/logs", params={"rank": 7}).status_code == 404
    assert local.client.get(f"/jobs/{job['id']}/logs", params={"attempt": 2}).status_code == 404


def test_a_job_reports_its_progress_and_hears_that_it_should_save_its_work(local: Server, tmp_path: Path) -> None:
    script = (
        'for i in $(seq 600); do curl -s -X POST -H "Authorization: Bearer $PHALANX_PROGRESS_TOKEN" '
        '-H "Content-Type: application/json" -d "{\\"step\\": $i}" "$PHALANX_PROGRESS_URL" '
        f"| tee -a {tmp_path}/heard | grep -q 'until_ms\":[0-9]' && exit 0; sleep 0.1; done; exit 1"
    )
    job = local.submit(gpus=1, command=["bash", "-c", script])
    local.wait(job["id"], "running")
    local.client.post(f"/jobs/{job['id']}:checkpoint", json={"within_s": 60}).raise_for_status()
    assert local.wait(job["id"], "succeeded", "failed")["state"] == "succeeded"


def test_a_command_goes_on_for_longer_than_a_request_may_take_to_arrive(local: Server) -> None:
    job = local.submit(gpus=1, command=["sleep", "600"], grace="1s")
    local.wait(job["id"], "running")
    url = local.url.replace("http", "ws") + f"/api/v1/jobs/{job['id']}/exec?arg=cat"
    with connect(url, additional_headers={"Authorization": local.client.headers["Authorization"]}) as line:
        with pytest.raises(TimeoutError):
            line.recv(timeout=1.5)
        line.send(b"still here")
        assert line.recv(timeout=30) == b"still here"
    local.client.post(f"/jobs/{job['id']}:cancel")


def test_a_command_runs_beside_a_task_and_is_audited(local: Server) -> None:
    job = local.submit(gpus=1, command=["sleep", "600"], grace="1s")
    local.wait(job["id"], "running")
    url = local.url.replace("http", "ws") + f"/api/v1/jobs/{job['id']}/exec"
    headers = {"Authorization": local.client.headers["Authorization"]}
    query = urlencode([("arg", word) for word in ("sh", "-c", "cat; echo $PHALANX_JOB_ID; exit 7")])
    with connect(f"{url}?{query}", additional_headers=headers) as line:
        line.send(b"typed ")
        line.send(json.dumps({"eof": True}))
        printed, told = b"", None
        for message in line:
            if isinstance(message, bytes):
                printed += message
            else:
                told = json.loads(message)
    assert printed == f"typed {job['id']}\n".encode()
    assert told == {"exit": 7}
    entry = local.client.get("/audit", params={"target": job["id"]}).json()["items"][0]
    assert (entry["verb"], entry["user"]) == ("exec in job", "admin")
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{url}?arg=id")
    assert refused.value.response.status_code == 401
    local.client.post(f"/jobs/{job['id']}:cancel").raise_for_status()
    local.wait(job["id"], "cancelled")
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{url}?arg=id", additional_headers=headers)
    assert refused.value.response.status_code == 409
