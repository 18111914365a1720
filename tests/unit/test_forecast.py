"""Forecasts: what the past says of lengths and arrivals, a world that goes on from a State, and intervals of starts."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean

import pytest

from builders import World, a_job, everything
from phalanx.cluster.cluster import Cluster, flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.state.records import JobState
from phalanx.engine.why.explain import explain
from phalanx.protocol.action import Stop
from phalanx.protocol.event import ClusterChanged, Done, JobCancelled
from phalanx.simulate.forecasts.apart import WorkFailedError, apart
from phalanx.simulate.forecasts.chances import Chances, orders_of
from phalanx.simulate.forecasts.forecast import (
    Forecast,
    Outlook,
    Point,
    Span,
    forecast,
    point_forecast,
    span,
    unsaid_jobs,
)
from phalanx.simulate.forecasts.past import FORECAST_MARK, Lengths, Past
from phalanx.simulate.world.costs import NO_COSTS
from phalanx.words.start import nothing_known
from phalanx.workload.job import Checkpointing, Kind

SURE = Outlook(runs=1, costs=NO_COSTS)
"""One run, in which everybody takes as long as is usual."""


def busy(policy: str = "fifo") -> World:
    """One node of 8 GPUs that a has until 100 s; b and c wait for all of it, 50 s each."""
    world = World(flat(1, 8), policy)
    world.run(a_job("a", 8, duration_ms=100_000))
    world.submit(a_job("b", 8, duration_ms=50_000), a_job("c", 8, duration_ms=50_000), after_ms=10_000)
    return world


def test_where_durations_are_known_everybody_starts_when_those_before_have_ended() -> None:
    made = forecast(busy().state, SURE)
    # a ends at 100 s, b runs until 150 s. Nothing costs time.
    assert made.spans == {"b": Span(100_000, 100_000, 100_000), "c": Span(150_000, 150_000, 150_000)}
    assert (made.at_ms, made.runs) == (10_000, 1)


def test_a_start_that_takes_time_is_counted() -> None:
    made = forecast(busy().state, replace(SURE, costs=replace(NO_COSTS, start_ms=7_000)))
    assert made.spans["b"] == Span(107_000, 107_000, 107_000)


@pytest.mark.parametrize(("saves", "last_s"), [(True, 150), (False, 160)])
def test_who_does_not_save_its_work_and_makes_room_is_expected_to_begin_anew(saves: bool, last_s: int) -> None:
    world = World(flat(1, 8), "priority")
    world.run(a_job("low", 8, duration_ms=100_000, checkpoint=Checkpointing(saves=saves)))
    high = a_job("high", 8, duration_ms=50_000, priority=100, begin_ms=10_000)
    world.submit(a_job("last", 8, duration_ms=50_000), high, after_ms=5_000)
    # low has run for 10 s when it makes room for high, which ends at 60 s; then it goes on.
    assert forecast(world.state, SURE).spans["last"] == Span(*(1000 * last_s,) * 3)


def test_a_forecast_leaves_the_state_as_it_was_and_comes_out_alike_again() -> None:
    state = busy().state
    before = everything(state)
    first = forecast(state, SURE)
    assert everything(state) == before
    assert forecast(state, SURE) == first


def test_a_point_forecast_is_what_is_usual_to_the_minute() -> None:
    state = busy().state
    # a ends at 100 s, which is seen at 120 s; b at 170 s, seen at 180 s.
    assert point_forecast(state, "c", SURE) == Point(180_000, None)
    assert point_forecast(state, "a", SURE) == Point(None, None)


def test_until_enough_have_ended_what_jobs_say_is_what_is_usual_and_no_more_than_that() -> None:
    span_ = forecast(busy().state, replace(SURE, runs=9)).spans["b"]
    # a says 100 s. It may end after a fifth of that, and in one of ten cases takes twice as long.
    assert (span_.early_ms, span_.middle_ms) == (20_000, 100_000)
    assert span_.late_ms is not None
    assert 200_000 <= span_.late_ms <= 250_000


def test_the_few_that_have_ended_are_taken_together_with_what_is_told_of_others() -> None:
    world = World(flat(1, 8))
    for number in range(5):
        world.run(a_job(f"before{number}", 8, duration_ms=100_000))
        world.end(f"before{number}", after_ms=10_000)
    past = Past(world.state)
    lengths = [past.length_ms(a_job("j", 8, duration_ms=100_000), 0, part) for part in (0.3, 0.5, 0.7, 0.8)]
    assert lengths == [10_000, 60_000, 100_000, 100_000]


def test_with_many_jobs_ahead_that_say_too_much_together_a_forecast_is_not_surer() -> None:
    world = World(flat(1, 8))
    for percent in range(2, 102, 4):
        world.run(a_job(f"before{percent}", 8, duration_ms=100_000))
        world.end(f"before{percent}", after_ms=1_000 * percent)
    world.submit(*(a_job(f"j{number}", 8, duration_ms=100_000) for number in range(21)))
    now_ms, span_ = world.state.now, forecast(world.state, replace(SURE, runs=9)).spans["j20"]
    # Each takes half of what it says in the mean. Draws of their own would have 20 of them take 10 times 100 s, give or
    # take a sixth.
    assert span_.early_ms is not None
    assert span_.late_ms is not None
    assert span_.early_ms - now_ms < 700_000
    assert span_.late_ms - now_ms > 1_300_000


def test_who_runs_longer_than_it_said_has_no_end_that_is_known() -> None:
    world = World(flat(1, 8))
    world.run(a_job("a", 8, duration_ms=1_000))
    world.submit(a_job("b", 8, duration_ms=1_000), after_ms=10_000)
    made = forecast(world.state, replace(SURE, runs=9))
    early_ms, late_ms = made.spans["b"].early_ms, made.spans["b"].late_ms
    assert early_ms is not None
    assert late_ms is not None
    # It has run for 10 s, ten times what it said: it may end soon, and in one of ten cases lasts ten times as long.
    assert 10_000 <= early_ms <= 20_000
    assert late_ms >= 50_000


def sleeping(*before: int) -> World:
    """One node of 8 GPUs on which jobs of so many milliseconds have ended; then one that says nothing has all of it."""
    world = World(flat(1, 8))
    for number, length_ms in enumerate(before):
        world.run(a_job(f"hello{number}", 8))
        world.end(f"hello{number}", after_ms=length_ms)
    world.run(a_job("sleeper", 8))
    return world


@pytest.mark.parametrize("before", [(), (3_000,), (3_000,) * 30], ids=["nobody", "one short job", "many short jobs"])
def test_behind_one_that_says_nothing_and_outlasts_all_before_it_nobody_can_tell(before: tuple[int, ...]) -> None:
    world = sleeping(*before)
    world.submit(a_job("later", 8), after_ms=10_000)
    made = forecast(world.state, replace(SURE, runs=9))
    assert made.spans["later"] == Span(None, None, None, open=True)
    assert made.not_before_ms("later") == world.state.now
    assert point_forecast(world.state, "later", SURE) == Point(None, None)
    assert unsaid_jobs(world.state)[0] == "sleeper"
    told = nothing_known(world.state, explain(world.state, "later"))
    assert told.startswith("it waits for job sleeper of queue default (8 GPUs), which does not say how long it takes")


def test_jobs_of_another_size_are_no_evidence() -> None:
    world = World(flat(1, 8))
    for number in range(30):
        world.run(a_job(f"hello{number}", 1))
        world.end(f"hello{number}", after_ms=600_000)
    world.run(a_job("sleeper", 8))
    world.submit(a_job("later", 8), after_ms=3_000)
    assert forecast(world.state, replace(SURE, runs=3)).spans["later"].open


def test_with_enough_jobs_like_it_that_took_longer_an_interval_is_told() -> None:
    world = sleeping(*(1_000 * seconds for seconds in range(300, 600, 10)))
    world.submit(a_job("later", 8), after_ms=320_000)
    span_ = forecast(world.state, replace(SURE, runs=9)).spans["later"]
    assert not span_.open
    # It has run for 320 s, and of those that ran longer none ended before 330 s.
    assert span_.early_ms is not None
    assert span_.early_ms - world.state.now >= 10_000


def test_who_must_first_wait_for_one_that_is_known_is_told_not_before_its_end() -> None:
    world = World(flat(1, 8))
    world.run(a_job("said", 4, duration_ms=600_000), a_job("unsaid", 4))
    world.submit(a_job("later", 8), after_ms=120_000)
    span_ = forecast(world.state, replace(SURE, runs=9)).spans["later"]
    # One can end at any moment; the other has run for 2 of the 10 minutes it says, and takes 4 at least.
    assert span_ == Span(span_.early_ms, None, None, open=True)
    assert span_.early_ms is not None
    assert 240_000 <= span_.early_ms <= 600_000


def test_nobody_is_expected_to_start_before_the_only_one_who_runs_can_end() -> None:
    world = World(flat(1, 8))
    # Too few to tell how far what jobs say is off.
    for number in range(5):
        world.run(a_job(f"hello{number}", 8, duration_ms=600_000))
        world.end(f"hello{number}", after_ms=1_000)
    world.run(a_job("a", 8, duration_ms=600_000))
    world.submit(a_job("later", 8), after_ms=120_000)
    end_ms = world.state.now + 480_000
    assert forecast(world.state, SURE).spans["later"] == Span(end_ms, end_ms, end_ms)
    point = point_forecast(world.state, "later", SURE)
    assert point.start_ms is not None
    assert point.start_ms >= end_ms


def test_where_jobs_of_unknown_length_do_not_matter_the_interval_is_as_if_they_were_not_there() -> None:
    world = World(flat(2, 8))
    world.run(a_job("a", 8, duration_ms=100_000), a_job("unsaid", 8))
    world.submit(a_job("b", 8, duration_ms=1_000), after_ms=10_000)
    span_ = forecast(world.state, replace(SURE, runs=9)).spans["b"]
    # It may end at once, and else the other will have ended when it says, or soon after.
    assert span_.late_ms == pytest.approx(100_000, rel=0.2)
    assert not span_.open
    assert span_.early_ms is not None
    assert span_.early_ms <= 20_000


def test_what_is_beyond_the_horizon_is_told_as_not_before_it() -> None:
    world = World(flat(1, 8))
    world.run(a_job("a", 8, duration_ms=100_000))
    world.submit(a_job("b", 8, duration_ms=1_000), after_ms=5_000)
    made = forecast(world.state, replace(SURE, horizon_ms=60_000))
    assert made.spans["b"] == Span(None, None, None)
    assert made.not_before_ms("b") == 65_000
    assert made.not_before_ms("a") is None


def test_those_who_are_held_are_not_forecast_and_those_who_make_room_are() -> None:
    world = World(flat(1, 8), "priority")
    world.run(a_job("a", 8, duration_ms=100_000))
    world.submit(a_job("b", 8, priority=10, duration_ms=1_000), a_job("h", 1), after_ms=1_000)
    world.state.record("h").held = True
    made = forecast(world.state, SURE)
    assert list(made.spans) == ["b"]
    assert made.spans["b"].early_ms == 1_000


def test_lengths_count_those_who_still_run_as_lasting_longer() -> None:
    # Two of four have ended, after 1 and 3; two still run, for 2. By Kaplan and Meier a quarter ends at 1, and of the
    # one at risk at 3 all do.
    lengths = Lengths([1.0, 3.0], [2.0, 2.0])
    assert [lengths.longer_than(0.0, part) for part in (0.0, 0.2, 0.3, 0.99)] == [1.0, 1.0, 3.0, 3.0]
    assert lengths.longer_than(1.0, 0.0) == 3.0


def test_past_all_that_is_known_some_time_more_is_expected() -> None:
    assert Lengths([1.0], []).longer_than(4.0, 0.5) == 8.0


def test_one_that_still_runs_does_not_tell_how_long_those_last_that_outlast_all_that_ended() -> None:
    # By Kaplan and Meier a half ends at 1. What outlasts that lasts twice as long as it has with a chance of one half.
    lengths = Lengths([1.0], [5.0])
    assert [lengths.longer_than(0.0, part) for part in (0.5, 0.75, 0.95)] == pytest.approx([1.0, 2.0, 10.0])
    assert lengths.longer_than(2.0, 0.5) == pytest.approx(4.0)


def test_lengths_are_learned_from_the_queue_and_from_jobs_of_the_size() -> None:
    world = World(flat(4, 8))
    for i in range(25):
        world.run(a_job(f"short{i}", 1, queue="a"))
        world.run(a_job(f"long{i}", 8, queue="a"))
        world.end(f"short{i}", after_ms=1_000)
        world.end(f"long{i}", after_ms=9_000)
    past = Past(world.state)
    assert past.length_ms(a_job("j", 1, queue="a"), 0, 0.5) == 1_000
    assert past.length_ms(a_job("j", 8, queue="a"), 0, 0.5) == 10_000
    assert past.length_ms(a_job("j", 8, queue="b"), 0, 0.5) == 10_000
    assert past.length_ms(a_job("j", 8, kind=Kind.SERVICE), 0, 0.5) is None


def test_those_who_were_cancelled_are_over_since_others_will_be_cancelled_alike() -> None:
    world = World(flat(4, 8))
    for i in range(25):
        world.run(a_job(f"gone{i}", 8), a_job(f"done{i}", 8))
        world.turn(JobCancelled(f"gone{i}"), after_ms=1_000)
        world.turn(*(Done(action.id) for action in world.asked.values() if isinstance(action, Stop)))
        world.end(f"done{i}", after_ms=59_000)
    assert world.job("gone0").final is JobState.CANCELLED
    past = Past(world.state)
    assert [past.length_ms(a_job("j", 8), 0, part) for part in (0.1, 0.4, 0.9)] == [1_000, 1_000, 60_000]


def test_of_what_users_say_the_queue_tells_how_far_it_is_off() -> None:
    world = World(flat(4, 8))
    for i in range(25):
        world.run(a_job(f"j{i}", 1, queue="a", duration_ms=4_000))
        world.end(f"j{i}", after_ms=1_000)
    past = Past(world.state)
    # Jobs of this queue take a quarter of what is said.
    assert past.length_ms(a_job("j", 1, queue="a", duration_ms=8_000), 0, 0.5) == 2_000


def test_who_says_far_more_than_anybody_before_is_not_believed_in_proportion() -> None:
    world = World(flat(4, 8))
    for i in range(25):
        world.run(a_job(f"j{i}", 1, duration_ms=4_000_000))
        world.end(f"j{i}", after_ms=2_000_000)
    past = Past(world.state)
    lengths = [past.length_ms(a_job("j", 1, duration_ms=600_000_000), 0, part) for part in (0.1, 0.4, 0.6, 0.9)]
    # It takes as long as they did, or half of what it says, as they did.
    assert lengths == [2_000_000, 2_000_000, 300_000_000, 300_000_000]


def test_where_nothing_is_known_nothing_is_said() -> None:
    past = Past(World(flat(1, 8)).state)
    assert past.length_ms(a_job("j", 1), 0, 0.5) is None
    assert past.length_ms(a_job("j", 1, max_run_ms=5), 0, 0.5) == 5
    assert list(past.coming(1_000_000, Random(1), 0.9)) == []


def test_every_attempt_may_run_as_long_as_it_may_at_most() -> None:
    """What ran before it was preempted does not count: it may run on, and is not expected to end at once."""
    past = Past(World(flat(1, 1)).state)
    length_ms = past.length_ms(a_job("j", 1, duration_ms=36_000_000, max_run_ms=3_600_000), 4_800_000, 0.5)
    assert length_ms == 4_800_000 + 3_600_000


@pytest.mark.parametrize(("drawn", "times"), [(0.5, 1), (0.75, 3), (0.0, 0)])
def test_a_rush_goes_on_for_as_long_again_with_a_chance_of_one_half(drawn: float, times: int) -> None:
    world = World(flat(4, 8))
    for i in range(31):
        world.submit(a_job(f"j{i}", 1), after_ms=10_000)
    coming = [at_ms for at_ms, _ in Past(world.state).coming(86_400_000, Random(1), drawn)]
    assert abs(len(coming) - 30 * times) <= times + 1
    assert all(at_ms <= world.state.now + times * 300_000 for at_ms in coming)


def test_the_runs_of_a_forecast_share_out_all_that_is_possible_for_every_job() -> None:
    orders = orders_of(9, seed=3)
    runs = [Chances(number, 3, orders) for number in range(9)]
    for name in ("1", "2", "3.7"):
        assert sorted(run.part(name) for run in runs) == pytest.approx([part / 10 for part in range(1, 10)])
    together = [tuple(run.part(name) for run in runs) for name in map(str, range(20))]
    assert len(set(together)) > 15, "each job has an order of its own"
    assert mean(order[0] for order in orders) < 3 < 7 < mean(order[-1] for order in orders), "jobs are short together"
    assert runs[4].part("2") == Chances(4, 3, orders_of(9, seed=3)).part("2"), "and keeps it"


def test_behind_one_job_of_which_enough_is_known_the_interval_is_the_middle_eighty_percent() -> None:
    world = World(flat(1, 8))
    for minute in range(1, 41):
        world.run(a_job(f"before{minute}", 8))
        world.end(f"before{minute}", after_ms=60_000 * minute)
    world.run(a_job("a", 8))
    world.submit(a_job("b", 8))
    span = forecast(world.state, Outlook(runs=9, costs=NO_COSTS)).spans["b"]
    assert span.early_ms is not None
    assert span.late_ms is not None
    assert 2 * 60_000 <= span.early_ms - world.state.now <= 8 * 60_000
    assert 33 * 60_000 <= span.late_ms - world.state.now <= 39 * 60_000


def test_jobs_come_as_they_came_before() -> None:
    world = World(flat(4, 8))
    for i in range(30):
        world.submit(a_job(f"j{i}", 1, queue="ab"[i % 2]), after_ms=10_000)
    coming = list(Past(world.state).coming(600_000, Random(1), 0.9))
    times = [at_ms for at_ms, _ in coming]
    assert times == sorted(times)
    assert times[0] >= world.state.now
    # One in ten seconds, for ten minutes.
    assert 55 <= len(coming) <= 65
    assert all(job.id.startswith(FORECAST_MARK) for _, job in coming)
    assert {job.queue for _, job in coming} == {"a", "b"}


def queues(*names: str) -> Cluster:
    return replace(flat(1, 8), queues=tuple(Queue(name) for name in names))


def test_jobs_of_a_queue_that_is_gone_do_not_come_again() -> None:
    world = World(queues("a", "b"), "fifo:skip=true")
    for i in range(60):
        world.run(a_job(f"j{i}", 1, queue="aab"[i % 3], duration_ms=5_000))
        world.end(f"j{i}", after_ms=10_000)
    world.turn(ClusterChanged(queues("b")))
    coming = list(Past(world.state).coming(600_000, Random(1), 0.9))
    assert {job.queue for _, job in coming} == {"b"}
    # One in thirty seconds, for ten minutes.
    assert 18 <= len(coming) <= 22
    world.run(a_job("x", 8, queue="b", duration_ms=100_000))
    world.submit(a_job("y", 8, queue="b", duration_ms=100_000))
    assert forecast(world.state, SURE).spans["y"].early_ms is not None


def test_jobs_that_ask_for_more_than_a_queue_may_have_by_now_do_not_come_again() -> None:
    world = World(queues("a"), "fifo:skip=true")
    for i in range(60):
        world.run(a_job(f"j{i}", 1 + 3 * (i % 2), queue="a", duration_ms=5_000))
        world.end(f"j{i}", after_ms=10_000)
    world.turn(ClusterChanged(replace(flat(1, 8), queues=(Queue("a", limit=Quota(2_000)),))))
    assert {job.gang.gpus_max for _, job in Past(world.state).coming(600_000, Random(1), 0.9)} == {1}


def test_where_nobody_would_be_taken_on_again_nobody_comes() -> None:
    world = World(queues("a", "b"), "fifo:skip=true")
    for i in range(30):
        world.submit(a_job(f"j{i}", 1, queue="a"), after_ms=1)
        world.turn(JobCancelled(f"j{i}"))
        world.done(f"j{i}")
    world.turn(ClusterChanged(queues("b")))
    assert list(Past(world.state).coming(7 * 86_400_000, Random(1), 0.9)) == []


def test_of_nineteen_starts_the_second_and_the_last_but_one_bound_eighty_percent() -> None:
    assert span(list(range(1, 20))) == Span(2, 10, 18)
    # Of 19 runs 4 did not get there: the interval has no end.
    assert span([*range(1, 16), None, None, None, None]) == Span(2, 10, None)


def test_a_point_forecast_follows_everybody_in_line_who_may_pass() -> None:
    # One rack is never empty while jobs of one GPU are there to fill it: 60 of them, 8 at a time.
    world = World(flat(1, 8), "fifo:skip=true")
    world.run(*(a_job(f"r{i}", 1, duration_ms=60_000 * (i + 1)) for i in range(8)))
    world.submit(a_job("large", 8, duration_ms=60_000), *(a_job(f"s{i}", 1, duration_ms=600_000) for i in range(60)))
    point = point_forecast(world.state, "large", SURE)
    assert point.start_ms is not None
    assert point.start_ms >= 60 * 600_000 // 8


def test_a_point_forecast_that_saw_too_many_others_start_says_up_to_when_it_looked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("phalanx.simulate.forecasts.forecast.STARTS_MAX", 2)
    world = busy("fifo:skip=true")
    world.submit(a_job("d", 8, duration_ms=50_000), a_job("e", 8, duration_ms=50_000))
    # To the minute: b starts at 120 s, c at 180 s, and then two have.
    assert point_forecast(world.state, "c", SURE) == Point(180_000, None)
    assert point_forecast(world.state, "e", SURE) == Point(None, 180_000)


def test_a_forked_run_that_fails_says_why() -> None:
    with pytest.raises(WorkFailedError, match="ZeroDivisionError"):
        apart(lambda number: 1 // number, 1, 1)
    with pytest.raises(WorkFailedError, match="SystemExit: 3"):
        apart(lambda number: sys.exit(3), 1, 1)
    assert apart(lambda number: number + 1, 5, 2) == [1, 2, 3, 4, 5]


def test_the_age_of_a_forecast_is_known() -> None:
    made = Forecast(1_000, 60_000, 1, {"j": Span(5_000, 5_000, 5_000)})
    assert made.not_before_ms("j") == 5_000


def test_a_forked_run_ends_with_the_process_that_asked_for_it(tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "from phalanx.simulate.forecasts.apart import apart\n"
        "def work(number):\n"
        "    print(os.getpid(), flush=True)\n"
        "    time.sleep(600)\n"
        "apart(work, 1, 1)\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        forked = int(asking.stdout.readline())
        asking.kill()
        # The pipe is at its end once no process has it open any more.
        assert asking.stdout.read() == ""
    assert not Path(f"/proc/{forked}/cmdline").exists() or not Path(f"/proc/{forked}/cmdline").read_bytes()
