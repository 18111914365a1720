"""Services that follow their load: a real one whose reports change, and one whose load a Prometheus tells."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from running import Server, eventually

from builders import World, a_job
from phalanx.cluster.cluster import flat
from phalanx.engine.decide.scaling import Standing, scaled
from phalanx.protocol.event import JobChanged, Progress
from phalanx.server.loop.wire import QueriedLoad
from phalanx.server.scaling.loads import Loads
from phalanx.server.scaling.prometheus import ANSWER_BYTES_MAX, DownError, QueryError, ask, number_of
from phalanx.server.scaling.scaler import Scaler
from phalanx.workload.job import Job, Kind
from phalanx.workload.scale import Metric, Scale

SERVICE = """
import json, os, sys, time, urllib.error, urllib.request
while True:
    load = float(open(sys.argv[1]).read())
    if os.environ["PHALANX_RANK"] == "0":
        token = os.environ["PHALANX_PROGRESS_TOKEN"]
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
        body = json.dumps({"metrics": {"requests_per_s": load}}).encode()
        try:
            urllib.request.urlopen(urllib.request.Request(os.environ["PHALANX_PROGRESS_URL"], body, headers)).close()
        except urllib.error.URLError:
            pass
    time.sleep(0.1)
"""


class Prometheus(HTTPServer):
    """Answers every query with one and the same."""

    answer: Any
    status: int = 200
    location: str = ""
    asked: list[str]

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked = []
        self.answer = vector(0)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Prometheus

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append(parse_qs(body)["query"][0])
        content = (
            self.server.answer if isinstance(self.server.answer, bytes) else json.dumps(self.server.answer).encode()
        )
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


def vector(*values: float | str) -> dict[str, Any]:
    result = [{"metric": {}, "value": [1790000000.0, str(value)]} for value in values]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


@pytest.fixture(scope="module")
def prometheus() -> Iterator[Prometheus]:
    server = Prometheus()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def answering(prometheus: Prometheus) -> Prometheus:
    """The same, with nothing wrong."""
    prometheus.status, prometheus.location, prometheus.answer, prometheus.asked = 200, "", vector(0), []
    return prometheus


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, prometheus: Prometheus) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("scaling")
    options = ("--nodes", "1", "--gpus", "4", "--policy", "priority", "--prometheus", prometheus.url)
    server = Server(folder / "data", *options).start()
    yield server
    server.stop()


def running(server: Server, job: str) -> int:
    """How many replicas a service has, and no fewer or more to come."""
    told = server.job(job)
    scale, attempt = told["scale"], told["attempt"]
    slots = len(attempt["slots"]) if attempt is not None and attempt["phase"] == "running" else 0
    return slots if scale["replicas"] == scale["running"] == slots else -1


@pytest.fixture
def load(tmp_path: Path) -> Path:
    file = tmp_path / "load"
    file.write_text("5")
    file.chmod(0o644)
    return file


def a_service(server: Server, load: Path, **more: Any) -> str:
    scale = {"metric": "requests_per_s", "target": 10, "min": 1, "max": 3, "cool_down": 0, **more.pop("scale", {})}
    command = ["python3", "-c", SERVICE, str(load)]
    job: str = server.submit(kind="service", gpus=1, priority=5, command=command, scale=scale, grace="1s", **more)["id"]
    return job


def test_a_service_grows_and_shrinks_with_what_it_reports(server: Server, load: Path) -> None:
    job = a_service(server, load)
    eventually(lambda: running(server, job) == 1 and server.job(job)["scale"]["value"] == 5)
    load.write_text("28")
    eventually(lambda: running(server, job) == 3)
    assert len(server.job(job)["nodes"]) == 1
    load.write_text("9")
    eventually(lambda: running(server, job) == 1)
    told = server.job(job)["scale"]
    assert (told["standing"], told["says"]) == (
        "steady",
        "1 of 1 to 3 replicas; requests_per_s is 9, 10 for each: that is right",
    )
    server.client.post(f"/jobs/{job}:cancel").raise_for_status()
    server.wait(job, "cancelled")


def test_a_training_gives_way_for_a_replica_and_why_tells_the_price(server: Server, load: Path) -> None:
    training = server.submit(gpus=3, command="sleep 600", name="training", grace="1s")["id"]
    server.wait(training, "running")
    job = a_service(server, load)
    eventually(lambda: running(server, job) == 1)
    price = server.client.get(f"/jobs/{job}/why").json()["next_replica"]
    assert (price["had"], [each["job"] for each in price["gives_way"]]) == ("preemption", [training])
    assert price["says"].startswith(f"1 replica would stop job {training} of queue default (3 GPUs): ")
    load.write_text("15")
    server.wait(training, "waiting")
    eventually(lambda: running(server, job) == 2)
    for each in (job, training):
        server.client.post(f"/jobs/{each}:cancel").raise_for_status()
        server.wait(each, "cancelled")


def test_without_load_a_service_has_no_replica_until_prometheus_tells_of_some(
    server: Server, answering: Prometheus, load: Path
) -> None:
    query = "sum(rate(requests_total[1m]))"
    answering.answer = vector(3)
    job = a_service(server, load, scale={"metric": {"query": query}, "min": 0})
    eventually(lambda: running(server, job) == 1 and server.job(job)["scale"]["value"] == 3)
    answering.answer = vector(0)
    eventually(lambda: server.job(job)["reason"] == "scaled_to_zero")
    assert server.job(job)["gpus"] >= 0
    assert "no replica" in server.client.get(f"/jobs/{job}/why").json()["why"]
    answering.answer = vector(12)
    eventually(lambda: running(server, job) == 2)
    assert dict.fromkeys(answering.asked) == {query: None}
    server.client.post(f"/jobs/{job}:cancel").raise_for_status()


def test_a_plan_tells_what_all_replicas_would_cost(server: Server) -> None:
    training = server.submit(gpus=3, command="sleep 600", grace="1s")["id"]
    server.wait(training, "running")
    scale = {"metric": "queue_length", "target": 1, "max": 4}
    job = {"kind": "service", "gpus": 1, "priority": 5, "command": "x", "scale": scale}
    (planned,) = server.client.post("/plan", json={"jobs": [job]}).raise_for_status().json()["items"]
    assert planned["victims"] == []
    assert (planned["all_replicas"]["replicas"], planned["all_replicas"]["had"]) == (4, "preemption")
    assert [each["gpus"] for each in planned["all_replicas"]["gives_way"]] == [3]
    server.client.post(f"/jobs/{training}:cancel").raise_for_status()


def test_a_server_without_prometheus_takes_no_query(rehearsal: Server) -> None:
    scale = {"metric": {"query": "up"}, "target": 1, "max": 2}
    body = {"kind": "service", "command": "x", "scale": scale}
    answer = rehearsal.client.post("/jobs", json=body)
    assert answer.status_code == 422
    assert "--prometheus" in answer.json()["message"]


def test_by_hand_a_size_is_set_within_its_scale_only(server: Server, load: Path) -> None:
    job = a_service(server, load, scale={"cool_down": "1h"})
    eventually(lambda: running(server, job) == 1)
    beyond = server.client.post(f"/jobs/{job}:resize", json={"replicas": 4})
    assert (beyond.status_code, "1 to 3 replicas" in beyond.text) == (409, True)
    assert server.client.post(f"/jobs/{job}:resize", json={"replicas": 2, "min": 2}).status_code == 409
    server.client.post(f"/jobs/{job}:resize", json={"replicas": 2}).raise_for_status()
    eventually(lambda: running(server, job) == 2)
    eventually(lambda: server.job(job)["scale"]["standing"] == "cools_down")
    before = server.job(job)["scale"]
    server.kill("loop")
    eventually(lambda: (server.job(job)["scale"]["value_at_ms"] or 0) > before["value_at_ms"] + 5_000)
    after = server.job(job)["scale"]
    assert (after["since_ms"], after["standing"], after["running"]) == (before["since_ms"], "cools_down", 2)
    server.client.post(f"/jobs/{job}:cancel").raise_for_status()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (vector(), "no series"),
        (vector(1, 2), "2 series"),
        ({"status": "success", "data": {"resultType": "matrix", "result": []}}, "comes to a matrix"),
        (b"<html>", "not one of Prometheus"),
        (b"[]", "not one of Prometheus"),
        (b" " * (ANSWER_BYTES_MAX + 1), "more than 1 MiB"),
        (
            {"status": "success", "data": {"resultType": "vector", "result": [{"value": [0, "x"]}]}},
            "not one of Prometheus",
        ),
    ],
)
def test_an_answer_that_is_not_one_number_is_told(answering: Prometheus, answer: Any, words: str) -> None:
    answering.answer = answer
    with pytest.raises(QueryError, match=words):
        ask(answering.url, "up")


def test_a_query_that_prometheus_refuses_is_told_with_its_words(answering: Prometheus) -> None:
    answering.status, answering.answer = 400, {"status": "error", "error": "parse error at char 3"}
    with pytest.raises(QueryError, match="refuses the query: parse error at char 3"):
        ask(answering.url, "up(")


def test_a_prometheus_that_is_down_or_leads_elsewhere_is_not_followed(answering: Prometheus) -> None:
    answering.status, answering.location = 302, f"{answering.url}/elsewhere"
    with pytest.raises(DownError, match="302"):
        ask(answering.url, "up")
    assert len(answering.asked) == 1
    with pytest.raises(DownError, match="cannot be asked"):
        ask("http://127.0.0.1:1", "up")


def test_numbers_are_read_of_scalars_and_vectors() -> None:
    assert number_of(json.dumps(vector(2.5)).encode()) == 2.5
    assert number_of(b'{"data": {"resultType": "scalar", "result": [0, "7"]}}') == 7
    assert str(number_of(json.dumps(vector("NaN")).encode())) == "nan"


def following(metric: Metric = Metric.REQUESTS_PER_S, **scale: Any) -> tuple[World, Loads, Scaler]:
    """A service on four GPUs, and what looks after it."""
    world = World(flat(1, 4), "priority")
    query = "up" if metric is Metric.QUERY else ""
    job: Job = a_job("s", kind=Kind.SERVICE, min_available=1, scale=Scale(metric, 10.0, 1, 4, query=query, **scale))
    world.run(job)
    loads = Loads(world.state)
    return world, loads, Scaler(world.state, loads)


def sizes(changes: list[JobChanged]) -> list[int]:
    return [change.job.gang.roles[0].replicas_max for change in changes]


def test_a_report_without_the_metric_says_nothing_of_the_load() -> None:
    _, loads, scaler = following()
    loads.report(Progress("s", 1, metrics={"loss": 1.0}), 0)
    assert scaler.changes(0) == []
    loads.report(Progress("s", 1, metrics={"requests_per_s": 35.0}), 20_000)
    assert sizes(scaler.changes(20_000)) == [4]


def test_a_service_that_never_measures_its_gpus_is_not_taken_for_idle() -> None:
    world, loads, scaler = following(Metric.GPU_BUSY)
    loads.report(Progress("s", 1, step=1), 0)
    assert loads.of("s") is None
    world.turn(JobChanged(scaled(world.job("s").job, 2, 0)))
    world.done("s")
    assert scaler.changes(10_000_000) == []


def test_a_load_that_is_told_of_by_another_query_is_not_its_own() -> None:
    _, loads, _ = following(Metric.QUERY)
    loads.query(QueriedLoad("s", "down", 90.0), 0)
    loads.query(QueriedLoad("gone", "up", 90.0), 0)
    assert loads.of("s") is None


def test_a_prometheus_that_is_down_leaves_the_last_value_until_it_is_stale() -> None:
    _, loads, scaler = following(Metric.QUERY)
    loads.query(QueriedLoad("s", "up", 10.0), 0)
    loads.query(QueriedLoad("s", "up", None, "down"), 50_000)
    scaler.changes(50_000)
    assert scaler._followed["s"].standing is Standing.STEADY
    assert scaler.changes(61_000) == []
    assert (scaler._followed["s"].standing, scaler._followed["s"].problem) == (Standing.STALE, "down")


def test_a_load_that_comes_and_goes_within_a_cool_down_keeps_its_replicas() -> None:
    world, loads, scaler = following(cool_down_ms=100_000)
    for second in range(0, 600, 20):
        world.now = 1000 * second
        loads.report(Progress("s", 1, metrics={"requests_per_s": 40.0 if second % 80 == 20 else 1.0}), world.now)
        if world.turn(*scaler.changes(world.now)).actions:
            world.done("s")
    assert world.job("s").gpus == 4
    changes = [entry for entry in world.journal.records if isinstance(entry.body, JobChanged)]
    assert len(changes) == 1


def test_what_the_state_refuses_is_told_and_not_tried_for_ever() -> None:
    world, loads, scaler = following()
    world.state.lacks = ("resize",)
    loads.report(Progress("s", 1, metrics={"requests_per_s": 35.0}), 20_000)
    assert scaler.changes(20_000) == []
    assert "job s" in scaler._followed["s"].problem
