"""Figures that the server keeps itself: series of the past, and what only the whole State tells."""

from __future__ import annotations

import logging
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from running import Server, eventually

from builders import World, a_job
from phalanx.cluster.cluster import flat
from phalanx.protocol.event import AttemptEnded, Outcome, Progress
from phalanx.server.api.overview.series import downsampled
from phalanx.server.figures.attention import STILL_MS, attention
from phalanx.server.figures.keeper import Keeper, levels_of
from phalanx.server.figures.loads import METRICS_MAX, Loads
from phalanx.server.figures.outlook import OutlookFile
from phalanx.server.figures.sample import CLUSTER_NAMES, sample, sample_jobs
from phalanx.server.figures.series import JOB_POINTS_MAX, JOBS_MAX, STEP_MS, TIERS, Point, SeriesWriter, read_points

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[SeriesWriter]:
    writer = SeriesWriter(tmp_path / "series.db")
    yield writer
    writer.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "series.db"


def test_the_last_hour_is_kept_finely_and_the_days_before_coarsely(writer: SeriesWriter, path: Path) -> None:
    step_ms = 60_000
    for now_ms in range(0, 3 * DAY_MS, step_ms):
        writer.add([("cluster", {"gpus_busy": float(now_ms // step_ms)})], now_ms)
    end_ms = 3 * DAY_MS
    assert read_points(path, "cluster", end_ms - HOUR_MS // 2, end_ms)[0] == STEP_MS
    day_step_ms, day = read_points(path, "cluster", end_ms - DAY_MS, end_ms)
    assert (day_step_ms, len(day)) == (120_000, 719)
    assert day[0].values == {"gpus_busy": (2 * day[0].at_ms / 60_000 + 1) / 2}, "the mean of two minutes"
    month_step_ms, month = read_points(path, "cluster", 0, end_ms)
    assert (month_step_ms, len(month)) == (1_800_000, 143)
    (count,) = sqlite3.connect(path).execute("SELECT count(*) FROM points").fetchone()
    assert count <= sum(most + 1 for _, most in TIERS["cluster"])


def test_the_first_hour_of_a_server_is_told_as_finely_as_it_is_known(writer: SeriesWriter, path: Path) -> None:
    start_ms = 10 * DAY_MS + 50_000
    for seconds in range(0, 2_400, 10):
        now_ms = start_ms + 1_000 * seconds
        writer.add([("cluster", {"gpus_busy": 1.0})], now_ms)
        step_ms, found = read_points(path, "cluster", now_ms - HOUR_MS, now_ms)
        assert (step_ms, len(found)) == (STEP_MS, seconds // 10), f"after {seconds} s"


def test_what_only_coarse_points_go_back_to_is_told_coarsely(writer: SeriesWriter, path: Path) -> None:
    for now_ms in range(0, 2 * HOUR_MS, STEP_MS):
        writer.add([("cluster", {"gpus_busy": 1.0})], now_ms)
    assert read_points(path, "cluster", 0, 2 * HOUR_MS)[0] == 120_000
    assert read_points(path, "cluster", HOUR_MS, 2 * HOUR_MS)[0] == STEP_MS


def test_what_is_older_than_a_month_and_nodes_that_are_gone_are_dropped(writer: SeriesWriter, path: Path) -> None:
    writer.add([("node:gone", {"gpus_allocated": 1.0})], 0)
    writer.add([("node:gone", {"gpus_allocated": 1.0})], 300_000)
    for now_ms in range(0, 40 * DAY_MS, 1_800_000):
        writer.add([("cluster", {"gpus_busy": 1.0})], now_ms)
    assert read_points(path, "node:gone", 0, DAY_MS)[1] == []
    (oldest_ms,) = sqlite3.connect(path).execute("SELECT min(at_ms) FROM points").fetchone()
    assert oldest_ms >= 40 * DAY_MS - 32 * DAY_MS


def test_all_of_a_jobs_life_is_kept_in_a_bounded_number_of_points(writer: SeriesWriter, path: Path) -> None:
    for now_ms in range(0, DAY_MS // 2, STEP_MS):
        writer.add_jobs([("job:1", {"progress": float(now_ms)})], now_ms)
    writer.finish_jobs(set())
    step_ms, points = read_points(path, "job:1", 0, DAY_MS)
    assert JOB_POINTS_MAX // 2 - 2 <= len(points) <= JOB_POINTS_MAX
    assert points[0].at_ms == 0
    assert points[-1].at_ms + step_ms >= DAY_MS // 2
    values = [point.values["progress"] for point in points]
    assert values == sorted(values)
    assert values[0] < step_ms < values[-1]


def test_series_of_jobs_are_bounded_and_those_that_ended_first_go_first(writer: SeriesWriter, path: Path) -> None:
    writer.add_jobs([("job:first", {"gpus": 1.0})], 0)
    writer.finish_jobs(set())
    writer.add_jobs([("job:second", {"gpus": 1.0})], STEP_MS)
    writer.finish_jobs(set())
    many = [(f"job:{number}", {"gpus": 1.0}) for number in range(JOBS_MAX - 1)]
    writer.add_jobs(many, 2 * STEP_MS)
    assert read_points(path, "job:first", 0, DAY_MS)[1] == []
    assert len(read_points(path, "job:second", 0, DAY_MS)[1]) == 1
    writer.add_jobs([*many, ("job:more", {"gpus": 1.0}), ("job:too many", {"gpus": 1.0})], 3 * STEP_MS)
    (count,) = sqlite3.connect(path).execute("SELECT count(*) FROM jobs").fetchone()
    assert count == JOBS_MAX, "nobody who runs loses what there is of it"
    assert read_points(path, "job:5", 0, DAY_MS)[1]


def test_series_survive_a_restart_and_a_file_that_cannot_be_read_is_begun_anew(path: Path) -> None:
    for start_ms in (0, HOUR_MS):
        writer = SeriesWriter(path)
        for number in range(3):
            writer.add([("cluster", {"gpus_busy": 1.0})], start_ms + number * STEP_MS)
            writer.add_jobs([("job:1", {"gpus": 2.0})], start_ms + number * STEP_MS)
        writer.close()
    assert len(read_points(path, "cluster", 0, DAY_MS)[1]) >= 1
    assert {point.at_ms for point in read_points(path, "job:1", 0, DAY_MS)[1]} == {0, 10_000, HOUR_MS, HOUR_MS + 10_000}
    for beside in path.parent.glob("series.db-*"):
        beside.unlink()
    path.write_bytes(b"this is no database" * 1000)
    SeriesWriter(path).close()
    assert read_points(path, "cluster", 0, DAY_MS)[1] == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_cannot_be_opened_costs_figures_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "series.db").mkdir()
    keeper = Keeper(tmp_path, tmp_path, logging.getLogger("test"))
    world = World(flat(2, 4))
    keeper.look_after(world.state, STEP_MS)
    assert OutlookFile(tmp_path).read().levels == levels_of(world.state)
    (tmp_path / "series.db").rmdir()
    for step in (2, 3):
        keeper.look_after(world.state, step * STEP_MS)
    assert read_points(tmp_path / "series.db", "cluster", 0, DAY_MS)[1][0].values["gpus_total"] == 8


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    path = tmp_path / "a?b#c%20 d.db"
    writer = SeriesWriter(path)
    for now_ms in (0, STEP_MS):
        writer.add([("cluster", {"gpus_busy": 1.0})], now_ms)
    writer.close()
    assert read_points(path, "cluster", 0, STEP_MS)[1] == [Point(0, {"gpus_busy": 1.0})]


def test_figures_that_nobody_kept_are_nothing(tmp_path: Path) -> None:
    assert read_points(tmp_path / "nowhere.db", "cluster", 0, 1)[1] == []
    assert not (tmp_path / "nowhere.db").exists()


def test_points_are_merged_until_there_are_few_enough() -> None:
    found = [Point(10_000 * number, {"a": float(number)}) for number in range(100) if number != 3]
    few = downsampled(found, ["a", "b"], 10_000, (0, 1_000_000), 10)
    assert few["step_ms"] == 100_000
    assert few["values"]["a"][1:3] == [14.5, 24.5]
    assert few["values"]["b"] == [None] * 10
    fine = downsampled(found, ["a"], 10_000, (20_000, 60_000), 300)
    assert (fine["start_ms"], fine["values"]["a"]) == (20_000, [2.0, None, 4.0, 5.0])
    assert len(downsampled([], ["a"], 10_000, (0, 1 << 62), 1000)["values"]["a"]) <= 1001


def test_a_sample_counts_every_device_once() -> None:
    world = World(flat(2, 4))
    world.run(a_job("1", gpus=3, queue="q/a"))
    world.submit(a_job("2", gpus=6, queue="q/a"))
    loads = Loads()
    samples = dict(sample(world.state, loads))
    whole = samples["cluster"]
    assert set(whole) == set(CLUSTER_NAMES)
    assert whole["gpus_total"] == 8 == sum(value for name, value in whole.items() if name.startswith("gpus_")) - 8
    assert (whole["gpus_busy"], whole["gpus_allocated"]) == (3, 0)
    assert (whole["jobs_pending"], whole["jobs_running"]) == (1, 1)
    assert samples["queue:q"] == samples["queue:q/a"] == {"gpus_used": 3, "jobs_pending": 1, "jobs_running": 1}
    assert samples["node:n0"] == {"gpus_allocated": 3}
    loads.note(Progress("1", 1, gpu_busy=0.01, memory_gb=6), 0)
    samples = dict(sample(world.state, loads))
    assert (samples["cluster"]["gpus_busy"], samples["cluster"]["gpus_allocated"]) == (0, 3)
    assert samples["node:n0"] == {"gpus_allocated": 3, "utilization": 1.0, "memory_mb": 6144}
    assert dict(sample_jobs(world.state, loads))["job:1"]["gpus"] == 3
    levels = {level.level: level.largest_gang_gpus for level in levels_of(world.state)}
    assert levels == {"cluster": 5, "node": 4}


def test_what_a_job_says_is_bounded_and_forgotten_at_its_end() -> None:
    loads = Loads()
    metrics = {f"m{number}": 1.0 for number in range(100)} | {"x" * 100: 1.0}
    for step in range(1, 3):
        loads.note(Progress("1", 1, step=step, gpu_busy=0.5, memory_gb=2.0, metrics=metrics), step)
    taken = loads.said["1"].take()
    assert taken["progress"] == 1.5
    assert taken["utilization"] == 50.0
    assert len(taken) == 3 + METRICS_MAX
    assert loads.said["1"].take() == {}
    loads.note(AttemptEnded("1", 1, Outcome.SUCCEEDED), 9)
    assert loads.said == {}
    loads.note(Progress("2", 1), 9)
    loads.keep(set())
    assert loads.said == {}


def test_a_job_whose_time_is_up_needs_attention() -> None:
    world = World(flat(1, 4))
    world.submit(
        a_job("runs", gpus=4),
        a_job("late", deadline_ms=50),
        a_job("slow", deadline_ms=2 * HOUR_MS, duration_ms=HOUR_MS),
        a_job("patient"),
        a_job("tired", max_wait_ms=1_000),
    )
    found = {(item.kind, item.job): item for item in attention(world.state, Loads(), HOUR_MS + 60_000)}
    assert set(found) == {
        ("deadline_at_risk", "late"),
        ("deadline_at_risk", "slow"),
        ("past_max_wait", "tired"),
    }
    assert found["deadline_at_risk", "late"].since_ms == 50
    assert found["past_max_wait", "tired"].since_ms == 1_000


def test_a_job_that_nothing_here_could_hold_needs_attention_at_once() -> None:
    world = World(flat(1, 4))
    world.submit(a_job("huge", gpus=64))
    assert [(item.kind, item.job) for item in attention(world.state, Loads(), 1)] == [("never_fits", "huge")]


def test_a_job_that_takes_no_step_is_stuck_and_one_that_computes_nothing_is_idle() -> None:
    world = World(flat(1, 4))
    world.run(a_job("stuck"), a_job("idle"), a_job("works"), a_job("silent"))
    loads = Loads()
    for now in range(0, STILL_MS + 1, STILL_MS // 10):
        loads.note(Progress("stuck", 1, step=3, gpu_busy=0.9), now)
        loads.note(Progress("idle", 1, step=1 + now, gpu_busy=0.0, memory_gb=1), now)
        loads.note(Progress("works", 1, step=1 + now, gpu_busy=0.9), now)
    found = {(item.kind, item.job) for item in attention(world.state, loads, STILL_MS)}
    assert found == {("stuck", "stuck"), ("idle_gpus", "idle")}
    assert attention(world.state, loads, STILL_MS - 1) == []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("figures") / "data"
    server = Server(data, "--simulate", "--nodes", "2", "--gpus", "4").start().with_queues("red", "blue")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def ended(server: Server) -> str:
    """A job that reported a loss while it ran, and has ended."""
    report = (
        'curl -s -H "Authorization: Bearer $PHALANX_PROGRESS_TOKEN" -H "Content-Type: application/json" '
        '-d \'{"step": 5, "gpu_busy": 0.01, "memory_gb": 2, "metrics": {"loss": 2.5}}\' "$PHALANX_PROGRESS_URL"'
    )
    script = f"for i in $(seq 12); do {report}; sleep 1; done; exit 3"
    made = server.submit(gpus=2, queue="red", name="teller", command=["sh", "-c", script])["id"]
    server.wait(made, "running")
    return str(made)


def series(client: httpx2.Client, **asked: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/series", params=asked).raise_for_status().json()
    return found


def known(values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def test_a_job_that_holds_idle_gpus_is_allocated_and_its_series_are_kept_after_its_end(
    server: Server, ended: str
) -> None:
    frame = eventually(lambda: found if 1 in (found := server.client.get("/devices/frame").content) else None)
    assert sorted(frame) == [0] * 6 + [1] * 2, "less than 5 % busy"
    assert sorted(server.client.get("/devices/frame", params={"colour": "utilization"}).content) == [0] * 6 + [1] * 2
    assert server.wait(ended, "failed", "succeeded")["state"] == "failed"
    told = eventually(
        lambda: found if known((found := series(server.client, scope=f"job:{ended}"))["values"]["gpus"]) else None
    )
    assert known(told["values"]["loss"])[0] == 2.5
    assert known(told["values"]["progress"])[0] == 5
    assert known(told["values"]["utilization"])[0] == 1.0
    assert known(told["values"]["memory_mb"])[0] == 2048
    items = server.client.get("/attention").json()["items"]
    assert [(item["kind"], item["job"]) for item in items] == [("failing", ended)]
    assert "exit 3" in items[0]["text"]


def test_the_series_of_the_cluster_survive_a_kill_of_the_planner(server: Server, ended: str) -> None:
    def totals() -> list[float]:
        return known(series(server.client, names="gpus_total,jobs_running")["values"]["gpus_total"])

    before = eventually(totals)
    assert set(before) == {8.0}
    server.kill("planner")
    eventually(lambda: len(totals()) > len(before))
    queue = series(server.client, scope="queue:red")
    assert max(known(queue["values"]["gpus_used"])) == 2
    assert queue["names"] == ["gpus_used", "gpus_deserved", "jobs_pending", "jobs_running"]


def test_a_series_of_the_last_day_ends_now(server: Server) -> None:
    day = series(server.client, last_ms=86_400_000, until=1_800_000_000_000, names="gpus_total")
    same = series(server.client, since=1_800_000_000_000 - 86_400_000, until=1_800_000_000_000, names="gpus_total")
    assert day == same
    assert series(server.client, last_ms=1 << 62, until=5, names="gpus_total")["start_ms"] == 0


def test_how_scattered_free_gpus_are_is_told_by_level(server: Server) -> None:
    levels = eventually(lambda: server.client.get("/fragmentation").json()["levels"])
    assert (levels[0]["level"], levels[0]["free"]) == ("cluster", levels[0]["largest_gang_gpus"])
    assert levels[-1]["level"] == "node"
    assert levels[-1]["largest_gang_gpus"] <= 4


def test_a_viewer_of_one_queue_hears_nothing_of_another(server: Server, ended: str) -> None:
    server.client.post("/users", json={"name": "blu"}).raise_for_status()
    server.client.put("/users/blu/roles/blue", json={"role": "viewer"}).raise_for_status()
    made = server.client.post("/tokens", json={"name": "t", "user": "blu", "scopes": ["read"]}).json()
    blue = server.as_user(made["token"])
    assert blue.get("/series", params={"scope": "queue:red"}).status_code == 404
    assert blue.get("/series", params={"scope": f"job:{ended}"}).status_code == 404
    assert blue.get("/attention").json() == {"items": [], "total": 0}
    assert blue.get("/series").status_code == 200


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"scope": "planet"}, 422),
        ({"scope": "queue:"}, 422),
        ({"scope": "cluster:x"}, 422),
        ({"scope": "node:nowhere"}, 404),
        ({"scope": "job:99999"}, 404),
        ({"names": "gpus_busy,beauty"}, 422),
        ({"points": 1001}, 422),
        ({"points": 0}, 422),
        ({"since": -1}, 422),
        ({"since": 5, "until": 4}, 422),
        ({"since": 1 << 63}, 422),
        ({"last_ms": 0}, 422),
        ({"since": 5, "last_ms": 5}, 422),
        ({"scope": "x" * 2000}, 422),
    ],
)
def test_series_of_nothing_are_refused_in_one_line(server: Server, asked: dict[str, Any], status: int) -> None:
    refused = server.client.get("/series", params=asked)
    assert refused.status_code == status, refused.text
    assert "\n" not in refused.json()["message"]
