"""The planner: futures that come to an end, and answers that know what time it is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from running import Server, eventually

from builders import World, a_job
from phalanx.cli.why_live import expected_start
from phalanx.cluster.cluster import flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.fold.snapshot import dump, load
from phalanx.protocol.event import ClusterChanged, TimerDue
from phalanx.server.planner.answers import answer
from phalanx.server.planner.forecaster import EVERY_MS, OUTLOOK, STILL_MS, Forecaster
from phalanx.server.planner.future import HORIZON_MS, Future, pass_time
from phalanx.server.planner.questions import PlanJobs, Why
from phalanx.simulate.forecasts.apart import WorkFailedError
from phalanx.simulate.forecasts.experience import decoded
from phalanx.simulate.forecasts.forecast import Forecast, Span, forecast
from phalanx.workload.job import Job

ENDS = ("early_ms", "middle_ms", "late_ms")


@pytest.mark.parametrize("policy", ["phalanx", "fifo", "las", "tiresias-las"])
def test_who_waits_for_a_job_without_an_end_is_not_followed_for_ever(policy: str) -> None:
    world = World(flat(1, 8), policy)
    world.run(a_job("endless", 8, duration_ms=None, preemptible=False))
    world.submit(a_job("waits", 8))
    began_ms = world.state.now
    assert Future(load(dump(world.state))).start_of("waits") is None
    future = Future(load(dump(world.state)))
    assert future.outcome()["unfinished"] == 2
    assert future.state.now <= began_ms + HORIZON_MS


def test_a_copy_that_is_asked_later_knows_how_late_it_is() -> None:
    world = World(flat(1, 8), "fifo")
    world.run(a_job("a", 8, duration_ms=100_000))
    world.submit(a_job("b", 8, duration_ms=10_000))
    copy = load(dump(world.state))
    pass_time(copy, world.state.now + 60_000)
    assert copy.now == world.state.now + 60_000
    assert Future(copy).start_of("b") == 100_000
    pass_time(world.state, 0)
    assert world.state.now == 0, "time never goes back"


def planned(world: World, job: Job, *queues: str) -> dict[str, Any]:
    """What somebody who sees some queues is told of a job that is planned on a live State."""
    reply = answer(PlanJobs([job], list(queues)), load(dump(world.state)))
    items: list[dict[str, Any]] = msgspec.json.decode(reply.body)["items"]
    return items[0]


def test_who_waits_for_what_cannot_come_is_not_told_when_it_will_start() -> None:
    queues = (Queue("a", limit=Quota(8_000)), Queue("b"))
    world = World(replace(flat(1, 8), queues=queues), "fifo:skip=true")
    world.run(a_job("x", 6, queue="b", duration_ms=60_000))
    world.submit(a_job("beyond", 4, queue="a"), a_job("within", 3, queue="a"))
    world.turn(ClusterChanged(replace(flat(1, 8), queues=(Queue("a", limit=Quota(3_000)), Queue("b")))))
    span = Span(1_000, 2_000, 3_000)
    made = Forecast(0, 60_000, 19, {"beyond": span, "within": span})

    def told(job: str) -> dict[str, Any]:
        answered: dict[str, Any] = msgspec.json.decode(answer(Why(job, [""]), load(dump(world.state)), made).body)
        return answered

    assert "could never have more than 3" in told("beyond")["why"]
    assert (told("beyond")["forecast"], told("beyond")["expected_start_ms"]) == (None, None)
    assert told("within")["forecast"]["early_ms"] == 1_000


def test_in_a_long_line_the_newest_forecast_tells_when_a_job_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.server.planner.answers.LONG_LINE", 1)
    world = World(flat(1, 8), "fifo")
    world.run(a_job("x", 8, duration_ms=60_000))
    world.submit(a_job("known", 8, duration_ms=60_000), a_job("new", 8, duration_ms=60_000))
    made = Forecast(0, 3_600_000, 19, {"known": Span(70_000, 90_000, 110_000)})

    def start_ms(job: str) -> int:
        told = msgspec.json.decode(answer(Why(job, [""]), load(dump(world.state)), made).body)
        return int(told["expected_start_ms"])

    assert start_ms("known") == 90_000
    assert start_ms("new") >= 120_000, "it is looked ahead for who came after the forecast"


@pytest.mark.parametrize("span", [Span(1_000, 2_000, 3_000), Span(1_000, 2_000, None, open=True)])
def test_a_forecast_whose_moments_have_passed_is_not_told(span: Span) -> None:
    """Of the second it is not known how late it gets: in half of the runs it began before now."""
    world = World(flat(1, 8), "fifo")
    world.run(a_job("x", 8))
    world.submit(a_job("waits", 8))
    made = Forecast(0, 3_600_000, 19, {"waits": span})

    def told() -> dict[str, Any]:
        answered: dict[str, Any] = msgspec.json.decode(answer(Why("waits", [""]), load(dump(world.state)), made).body)
        return answered

    assert told()["forecast"]["middle_ms"] == 2_000
    world.turn(TimerDue(), after_ms=3_001)
    assert told()["forecast"] is None
    assert told()["no_forecast"].startswith("it waits for job x of queue default (8 GPUs), which does not say how long")


def why_of(world: World, job: str) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.json.decode(answer(Why(job, [""]), load(dump(world.state))).body)
    return told


@pytest.mark.parametrize(("duration_ms", "expected_by"), [(100_000, "said"), (None, "usual")])
def test_it_is_told_whether_a_start_is_by_what_jobs_say_or_by_what_is_usual(
    duration_ms: int | None, expected_by: str
) -> None:
    world = World(flat(1, 8), "fifo")
    for i in range(9):
        world.run(a_job(f"before{i}", 8, duration_ms=None))
        world.end(f"before{i}", after_ms=60_000)
    world.run(a_job("a", 8, duration_ms=duration_ms))
    world.submit(a_job("b", 8, duration_ms=None))
    told = why_of(world, "b")
    assert (told["expected_by"], told["expected_start_ms"] > world.state.now) == (expected_by, True)


def test_of_who_is_short_of_budget_it_is_told_that_it_must_be_raised() -> None:
    cluster = replace(flat(1, 8), queues=(Queue("a", budget_gpu_ms=1_000), Queue("b")))
    world = World(cluster, "fifo:skip=true")
    world.run(a_job("x", 8, queue="a", duration_ms=60_000))
    world.end("x", after_ms=60_000)
    world.submit(a_job("y", 1, queue="a"))
    assert why_of(world, "y")["starts_when"] == "not before the budget of queue a is raised"


def test_who_has_room_made_for_it_starts_within_the_grace_of_those_who_leave() -> None:
    world = World(flat(1, 8), "priority")
    world.run(a_job("low", 8, grace_ms=8_000))
    world.submit(a_job("high", 8, priority=100), after_ms=1_000)
    assert why_of(world, "high")["starts_when"] == "as soon as the jobs have ended that are stopped for it: within 8s"
    world.turn(TimerDue(), after_ms=9_000)
    assert why_of(world, "high")["starts_when"] == "as soon as the jobs have ended that are stopped for it"
    assert why_of(world, "low")["starts_when"] == ""


def test_a_job_that_made_room_is_told_for_whom_as_far_as_it_may_know() -> None:
    world = World(flat(1, 8), "priority")
    world.run(a_job("low", 4, queue="red"), a_job("other", 4, queue="red", preemptible=False))
    assert why_of(world, "low")["preempted"] == ""
    world.submit(a_job("high", 4, queue="blue", priority=100))
    assert why_of(world, "low")["preempted"] == "it makes room for job high of queue blue (4 GPUs)"
    world.done("low")
    assert why_of(world, "low")["preempted"] == "once for job high of queue blue (4 GPUs)"
    hidden = msgspec.json.decode(answer(Why("low", ["red"]), load(dump(world.state))).body)
    assert hidden["preempted"] == "once for a job of queue blue (4 GPUs)"
    assert "high" not in str(hidden["preempted"])


def test_where_looking_ahead_fails_the_rest_of_the_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise WorkFailedError("a forked run failed: ValueError: no")

    monkeypatch.setattr("phalanx.server.planner.answers.point_forecast", fails)
    world = World(flat(1, 8), "fifo")
    world.run(a_job("a", 8, duration_ms=100_000))
    world.submit(a_job("b", 8, duration_ms=10_000))
    reply = answer(Why("b", [""]), load(dump(world.state)))
    told = msgspec.json.decode(reply.body)
    assert (reply.status, told["reason"], told["expected_start_ms"]) == (200, "gpus", None)
    assert told["no_forecast"] == "a forked run failed: ValueError: no"


@pytest.mark.parametrize("looked_ahead", [False, True])
def test_behind_a_job_of_unknown_length_that_is_told_and_no_moment(looked_ahead: bool) -> None:
    world = World(flat(1, 8), "fifo")
    world.run(a_job("sleeper", 8, queue="blue", duration_ms=None))
    world.submit(a_job("later", 8, queue="red", duration_ms=None), after_ms=3_000)
    made = forecast(world.state, OUTLOOK) if looked_ahead else None
    told = msgspec.json.decode(answer(Why("later", ["red"]), load(dump(world.state)), made).body)
    moments = [told["expected_start_ms"], told["expected_not_before_ms"], *map((told["forecast"] or {}).get, ENDS)]
    assert moments == [None] * 5
    assert told["no_forecast"].startswith("it waits for a job of queue blue (8 GPUs), which does not say how long")
    line = expected_start(told, world.state.now)
    assert line is not None
    assert line.startswith("unknown: ")


def test_behind_one_that_runs_longer_than_it_said_no_start_is_told_at_once() -> None:
    world = World(flat(1, 8), "fifo")
    world.run(a_job("late", 8, duration_ms=600_000))
    world.submit(a_job("b", 8, duration_ms=None), after_ms=700_000)
    told = why_of(world, "b")
    # As long again as it has run is what is usual then.
    assert (told["expected_by"], told["expected_start_ms"] >= world.state.now + 700_000) == ("usual", True)


def test_of_others_jobs_a_plan_tells_only_the_queue() -> None:
    world = World(flat(1, 8), "fifo")
    world.run(a_job("secret", 8, queue="blue", duration_ms=None, preemptible=False))
    world.submit(a_job("secret2", 8, queue="blue"))
    told = planned(world, a_job("mine", 1, queue="red"), "red")
    assert told["why"] == "it is behind a job of queue blue, which does not fit and may not be passed"
    assert planned(world, a_job("mine", 1, queue="red"), "")["why"].startswith("it is behind job secret2")


def test_of_others_jobs_a_plan_names_no_victims_but_counts_with_them() -> None:
    world = World(flat(1, 8), "priority")
    world.run(a_job("secret", 8, queue="blue", duration_ms=60_000))
    told = planned(world, a_job("mine", 8, queue="red", priority=1), "red")
    assert (told["state"], told["victims"]) == ("waiting", [])
    other = {"job": "", "queue": "blue", "gpus": 8, "expected_end_ms": 60_000, "attempt": 0, "lost_gpu_ms": 0}
    assert told["makes_room"] == [other]
    told = planned(world, a_job("mine", 8, queue="red", priority=1), "")
    assert (told["victims"], told["makes_room"]) == (["secret/1"], [other | {"job": "secret", "attempt": 1}])


def test_a_plan_tells_what_its_preemptions_cost() -> None:
    world = World(flat(1, 8), "priority")
    world.run(a_job("long", 8, queue="blue", duration_ms=None))
    world.submit(a_job("other", 9), after_ms=1_800_000)
    told = planned(world, a_job("mine", 8, priority=1), "")
    assert [each["job"] for each in told["makes_room"]] == ["long"]
    # Half an hour on eight GPUs, none of it saved.
    assert told["lost_gpu_ms"] == told["makes_room"][0]["lost_gpu_ms"] == 8 * 1_800_000
    assert told["deadline"] is None


def test_a_plan_tells_whether_a_deadline_can_be_met() -> None:
    world = World(flat(1, 8), "fifo")
    now = world.state.now
    early = planned(world, a_job("early", 8, duration_ms=60_000, deadline_ms=now + 120_000), "")["deadline"]
    assert (early["can_be_met"], early["expected_end_ms"]) == (True, now + 60_000)
    assert early["says"].startswith("it can meet its deadline if it starts within")
    late = planned(world, a_job("late", 8, duration_ms=60_000, deadline_ms=now + 30_000), "")["deadline"]
    assert late["can_be_met"] is False
    assert late["says"] == "it cannot meet its deadline: even if it started now it would end 30s late"
    unknown = planned(world, a_job("unknown", 8, duration_ms=None, deadline_ms=now + 30_000), "")["deadline"]
    assert (unknown["can_be_met"], unknown["expected_end_ms"]) == (None, None)


def test_a_deadline_that_could_be_met_and_is_missed_by_the_plan_says_so() -> None:
    world = World(flat(1, 8), "fifo")
    world.run(a_job("before", 8, duration_ms=600_000))
    world.submit(a_job("next", 8, duration_ms=600_000))
    told = planned(world, a_job("mine", 8, duration_ms=60_000, deadline_ms=world.state.now + 900_000), "")["deadline"]
    assert (told["can_be_met"], told["expected_end_ms"]) == (True, 1_260_000)
    assert told["says"].endswith("; as things stand it ends 6m 0s late")


def test_who_waits_while_nothing_happens_is_told_anew_now_and_then(tmp_path: Path) -> None:
    world = World(flat(1, 8), "fifo")
    world.run(a_job("a", 8, duration_ms=3_600_000))
    world.submit(a_job("b", 8, duration_ms=10_000))
    forecaster, now_ms = Forecaster(tmp_path / "forecasts.json"), 1_000

    def told() -> int:
        """When the newest forecast was made, once whoever looks ahead has come back."""
        before = forecaster.newest
        forecaster.look_after(world.state, now_ms)
        eventually(lambda: forecaster.look_after(world.state, now_ms) or forecaster.newest is not before)
        assert forecaster.newest is not None
        return forecaster.newest.at_ms

    assert told() == 1_000
    now_ms += EVERY_MS + 1
    world.submit(a_job("c", 8))
    assert told() == now_ms, "something has happened"
    first = forecaster.newest
    now_ms += EVERY_MS + 1
    forecaster.look_after(world.state, now_ms)
    assert forecaster.newest is first
    now_ms += STILL_MS
    assert told() == now_ms


def test_what_starts_have_taught_outlives_the_planner(tmp_path: Path) -> None:
    file, world = tmp_path / "forecasts.json", World(flat(1, 8), "fifo")
    world.run(a_job("a", 8, duration_ms=60_000))
    world.submit(a_job("b", 8, duration_ms=10_000))

    def looked(forecaster: Forecaster, now_ms: int) -> None:
        before = forecaster.newest
        eventually(lambda: forecaster.look_after(world.state, now_ms) or forecaster.newest is not before)

    first = Forecaster(file)
    looked(first, 1_000)
    assert not file.exists(), "nothing has been learned yet"
    world.end("a", after_ms=60_000)
    world.done("b")
    world.submit(a_job("c", 8, duration_ms=10_000))
    looked(first, 60_000 + EVERY_MS)
    assert list(decoded(file.read_bytes()).misses) == ["fifo"]
    file.write_bytes(b"no file of ours")
    looked(Forecaster(file), 60_000 + EVERY_MS)


def test_a_server_on_which_nothing_happens_writes_nothing_and_still_tells_the_time(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal", "--nodes", "1", "--gpus", "8", "--policy", "phalanx").start()
    running = server.submit(gpus=8, duration="1h", preemptible=False)
    server.wait(running["id"], "running")
    waiting = server.submit(gpus=8, duration="1h")
    eventually(lambda: server.job(waiting["id"])["reason"] == "gpus")

    def turns() -> int:
        text = httpx2.get(f"{server.url}/metrics", headers=dict(server.client.headers)).text
        return int(float(text.partition("phalanx_loop_turn_seconds_count ")[2].split()[0]))

    def left_s() -> int:
        told = server.client.get(f"/jobs/{waiting['id']}/why").json()["evidence"]["next_to_end"]
        left = re.fullmatch(r"8 GPUs of default in (?:(\d+)h|(\d+)m (\d+)s)", told)
        assert left is not None, told
        return 3600 * int(left[1] or 0) + 60 * int(left[2] or 0) + int(left[3] or 0)

    before = httpx2.get(f"{server.url}/readyz").json()["seq"], turns()
    eventually(lambda: left_s() <= 3600 - 3)
    eventually(lambda: turns() >= before[1] + 3)
    assert httpx2.get(f"{server.url}/readyz").json()["seq"] == before[0]
    server.stop()
