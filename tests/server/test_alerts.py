"""Alerts: rules come true, are told once, act once, and are over."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from running import Server, eventually
from test_jobs_api import attempt_token_of

from phalanx.cluster.cluster import Health
from phalanx.document import DocumentError
from phalanx.protocol.event import AttemptEnded, NodeHealthChanged, Outcome, Progress
from phalanx.server.alerts.rules import Rule, Rules, Then, When, read_rules
from phalanx.server.alerts.watch import Watch

HOUR_MS = 3_600_000
IDLE = Rule("idle", When.IDLE_GPUS, 3 * HOUR_MS)
STUCK = Rule("stuck", When.STUCK_JOB, HOUR_MS, Then.STOP)
FLAPPING = Rule("flapping", When.FLAPPING_NODE, HOUR_MS, Then.DRAIN, times=3)


def test_a_job_whose_gpus_idle_for_three_hours_is_told() -> None:
    watch = Watch((IDLE,))
    watch.note(Progress("7", 1, step=1, gpu_busy=0.9), 0)
    for hour in range(1, 4):
        watch.note(Progress("7", 1, step=1 + hour, gpu_busy=0.01), hour * HOUR_MS)
        assert bool(watch.firing(hour * HOUR_MS)) == (hour == 3), "it was busy at hour 0"
    assert watch.firing(3 * HOUR_MS)[0][:3] == ("idle", "7", 0)
    watch.note(Progress("7", 1, step=9, gpu_busy=0.5), 4 * HOUR_MS)
    assert watch.firing(4 * HOUR_MS) == []


def test_of_a_job_that_never_measures_its_gpus_nobody_knows_that_they_idle() -> None:
    watch = Watch((IDLE,))
    for hour in range(10):
        watch.note(Progress("7", 1, step=hour), hour * HOUR_MS)
        watch.note(Progress("8", 1, step=hour, memory_gb=60.0), hour * HOUR_MS)
    assert [alert.subject for alert in watch.firing(10 * HOUR_MS)] == ["8"]


def test_a_job_that_takes_no_step_for_an_hour_is_stuck_until_it_ends() -> None:
    watch = Watch((STUCK,))
    watch.note(Progress("7", 1, step=5), 0)
    watch.note(Progress("7", 1, step=5), HOUR_MS - 1)
    assert watch.firing(HOUR_MS - 1) == []
    assert [alert.then for alert in watch.firing(HOUR_MS)] == [Then.STOP]
    watch.note(AttemptEnded("7", 1, Outcome.FAILED), HOUR_MS)
    assert watch.firing(2 * HOUR_MS) == []


def test_a_new_attempt_begins_anew() -> None:
    watch = Watch((STUCK,))
    watch.note(Progress("7", 1, step=100), 0)
    watch.note(Progress("7", 2, step=3), HOUR_MS)
    assert watch.firing(HOUR_MS) == []


def test_a_node_that_falls_three_times_within_an_hour_flaps() -> None:
    watch = Watch((FLAPPING,))
    for minute in (0, 10, 70, 75):
        watch.note(NodeHealthChanged("n1", Health.FAILED), minute * 60_000)
        watch.note(NodeHealthChanged("n1", Health.HEALTHY), minute * 60_000 + 1)
        assert watch.firing(minute * 60_000 + 1) == [], "never three within an hour"
    watch.note(NodeHealthChanged("n1", Health.SUSPECT), 80 * 60_000)
    assert watch.firing(80 * 60_000) == [("flapping", "n1", 70 * 60_000, 3, Then.DRAIN)]
    assert watch.firing(140 * 60_000) == []


def test_rules_are_read_from_a_file() -> None:
    text = """\
webhook: https://hooks.example/phalanx
rules:
- {when: idle_gpus, for: 3h, busy_below: 0.1}
- {name: hung, when: stuck_job, for: 30m, then: stop}
- {when: flapping_node, for: 1h, times: 5, then: drain}
"""
    assert read_rules(text, "alerts.yaml") == Rules(
        (
            Rule("idle_gpus", When.IDLE_GPUS, 3 * HOUR_MS, busy_below=0.1),
            Rule("hung", When.STUCK_JOB, HOUR_MS // 2, Then.STOP),
            Rule("flapping_node", When.FLAPPING_NODE, HOUR_MS, Then.DRAIN, times=5),
        ),
        "https://hooks.example/phalanx",
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rules: [{when: idle_gpus, for: 1h, then: drain}]", "notify or stop"),
        ("rules: [{when: full_moon, for: 1h}]", "full_moon"),
        ("rules: [{when: stuck_job}]", "for"),
        ("webhook: ftp://x", "https://"),
        ("rules: [{when: stuck_job, for: 1h}, {when: stuck_job, for: 2h}]", "one name"),
        ("hook: x", "hook"),
    ],
)
def test_what_is_wrong_with_rules_is_told(text: str, told: str) -> None:
    with pytest.raises(DocumentError, match=told):
        read_rules(text, "alerts.yaml")


@pytest.fixture
def hook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook, and what it was told."""
    told: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", told
        server.shutdown()


def test_a_stuck_job_is_told_to_a_webhook_and_stopped(folder: Path, hook: tuple[str, list[dict[str, Any]]]) -> None:
    url, told = hook
    file = folder.parent / "alerts.yaml"
    file.write_text(f"webhook: {url}\nrules:\n- {{name: hung, when: stuck_job, for: 500ms, then: stop}}\n")
    server = Server(folder, "--backend", "rehearsal", "--alerts", str(file)).start()
    job = server.submit(gpus=1)
    server.wait(job["id"], "running")
    client = server.as_user(attempt_token_of(server, job["id"]))
    client.post(f"/jobs/{job['id']}/progress", json={"step": 1}).raise_for_status()
    server.wait(job["id"], "cancelled")
    eventually(lambda: len(told) == 2)
    assert [(each["status"], each["rule"], each["subject"]) for each in told] == [
        ("firing", "hung", job["id"]),
        ("resolved", "hung", job["id"]),
    ]
    entry = server.client.get("/audit", params={"target": job["id"]}).json()["items"][0]
    assert (entry["user"], entry["verb"]) == ("alerts", "cancel job")
    word = "stopped by the alert rule hung"
    assert entry["detail"] == word
    assert server.client.get(f"/jobs/{job['id']}").json()["end_reason"] == word
    assert server.client.get(f"/jobs/{job['id']}/why").json()["why"] == f"it was cancelled: {word}"
    with server.client.stream("GET", "/events", params={"since": -1, "follow": False}) as events:
        assert word in "".join(events.iter_text())
    eventually(lambda: server.client.get("/alerts").json()["items"] == [])
    server.stop()


def test_a_job_that_got_stuck_before_the_watch_began_is_told_all_the_same(
    folder: Path, hook: tuple[str, list[dict[str, Any]]]
) -> None:
    url, told = hook
    file = folder.parent / "alerts.yaml"
    file.write_text(f"webhook: {url}\nrules:\n- {{name: hung, when: stuck_job, for: 100ms}}\n")
    server = Server(folder, "--backend", "rehearsal").start()
    job = server.submit(gpus=1)["id"]
    server.wait(job, "running")
    client = server.as_user(attempt_token_of(server, job))
    client.post(f"/jobs/{job}/progress", json={"step": 1}).raise_for_status()
    server.stop()
    server = Server(folder, "--backend", "rehearsal", "--alerts", str(file)).start()
    eventually(lambda: told)
    assert (told[0]["status"], told[0]["subject"]) == ("firing", job)
    server.stop()


def test_rules_that_cannot_be_read_are_told_to_who_starts_the_server(folder: Path) -> None:
    from phalanx.server.options import Options
    from phalanx.server.up import up

    file = folder.parent / "alerts.yaml"
    file.write_text("rules: 7")
    with pytest.raises(DocumentError):
        up(Options(data=str(folder), port=0, alerts=str(file)), lambda options: None, lambda line: None)
