"""The backend in virtual time, and runs on it."""

from __future__ import annotations

import pytest

from builders import a_job, virtual_backend
from phalanx.cluster.cluster import flat
from phalanx.engine.state.records import JobState
from phalanx.placement.placement import Placement
from phalanx.protocol.action import Action, ActionId, Start, Stop
from phalanx.protocol.event import AttemptEnded, Done, Event, Failed, JobCancelled, JobSubmitted, Lost, Outcome
from phalanx.simulate.run import Run, submissions
from phalanx.simulate.world.virtual import Fault, VirtualBackend

NOWHERE = Placement(())


def start(job: str = "a", attempt: int = 1, seq: int = 0, term: int = 1) -> Start:
    return Start(ActionId(term, job, attempt, seq), NOWHERE)


def stop(job: str = "a", attempt: int = 1, seq: int = 1, grace_ms: int = 30_000) -> Stop:
    return Stop(ActionId(1, job, attempt, seq), grace_ms, "cancelled")


@pytest.fixture
def backend() -> VirtualBackend:
    """`a` lasts 10 s; starting takes 2 s, stopping 5 s."""
    return virtual_backend({"a": 10_000}, start_ms=2_000, stop_ms=5_000)


def test_a_start_takes_its_time_and_the_job_lasts_from_then_on(backend: VirtualBackend) -> None:
    backend.carry_out(start(), 1_000)
    assert backend.next_event_ms() == 3_000
    assert backend.events(2_999) == []
    assert backend.events(3_000) == [Done(start().id)]
    assert backend.next_event_ms() == 13_000
    assert backend.events(20_000) == [AttemptEnded("a", 1, Outcome.SUCCEEDED)]
    assert backend.next_event_ms() is None


def test_events_that_are_due_come_in_the_order_of_their_times(backend: VirtualBackend) -> None:
    backend.carry_out(start(), 0)
    assert backend.events(60_000) == [Done(start().id), AttemptEnded("a", 1, Outcome.SUCCEEDED)]


def test_a_job_of_unknown_length_never_ends_by_itself(backend: VirtualBackend) -> None:
    backend.carry_out(start("endless"), 0)
    backend.events(2_000)
    assert backend.next_event_ms() is None


def test_a_stop_takes_its_time_but_never_longer_than_the_grace(backend: VirtualBackend) -> None:
    backend.carry_out(start(), 0)
    backend.events(2_000)
    backend.carry_out(stop(grace_ms=1_000), 3_000)
    assert backend.events(4_000) == [Done(stop().id)]
    assert backend.events(60_000) == [], "what was stopped does not end once more"


@pytest.mark.parametrize(("reason", "left_ms"), [("preempted", 6_000), ("maintenance", 6_000), ("hardware", 10_000)])
def test_who_is_given_notice_goes_on_from_where_it_was_and_who_is_not_begins_anew(
    backend: VirtualBackend, reason: str, left_ms: int
) -> None:
    backend.carry_out(start(), 0)
    backend.events(2_000)
    backend.carry_out(Stop(stop().id, 30_000, reason), 6_000)
    backend.events(11_000)
    backend.carry_out(start(attempt=2, seq=2), 20_000)
    backend.events(22_000)
    assert backend.next_event_ms() == 22_000 + left_ms


def test_a_job_that_is_stopped_before_it_runs_does_not_run(backend: VirtualBackend) -> None:
    backend.carry_out(start(), 0)
    backend.carry_out(stop(), 1_000)
    assert AttemptEnded("a", 1, Outcome.SUCCEEDED) not in backend.events(60_000)


def test_an_action_asked_for_twice_is_done_once(backend: VirtualBackend) -> None:
    backend.carry_out(start(), 0)
    backend.carry_out(start(), 500)
    assert backend.events(60_000).count(Done(start().id)) == 1


def test_an_older_attempt_is_refused(backend: VirtualBackend) -> None:
    backend.carry_out(start(attempt=2), 0)
    backend.carry_out(start(attempt=1), 0)
    refused = [event for event in backend.events(2_000) if isinstance(event, Failed)]
    assert [(event.action.attempt, event.retryable) for event in refused] == [(1, False)]


def test_an_older_term_is_refused(backend: VirtualBackend) -> None:
    backend.carry_out(start(term=2), 0)
    backend.carry_out(start("b", term=1), 0)
    refused = [event for event in backend.events(2_000) if isinstance(event, Failed)]
    assert [(event.action.job, event.retryable) for event in refused] == [("b", False)]


def faulty(answer: type[Failed] | type[Lost], *kinds: type[Action]) -> Fault:
    def fault(action: Action) -> Event | None:
        if not isinstance(action, kinds):
            return None
        return Failed(action.id, "as told") if answer is Failed else Lost(action.id)

    return fault


def test_a_start_that_is_told_to_fail_runs_nothing() -> None:
    backend = virtual_backend({"a": 10}, fault=faulty(Failed, Start))
    backend.carry_out(start(), 0)
    assert backend.events(1_000) == [Failed(start().id, "as told")]


def test_a_new_attempt_runs_though_the_stop_of_one_whose_start_failed_is_still_unanswered() -> None:
    def fault(action: Action) -> Event | None:
        return Failed(action.id, "bad luck") if action.id == start().id else None

    backend = virtual_backend({"a": 10_000}, start_ms=2_000, stop_ms=5_000, fault=fault)
    backend.carry_out(start(), 0)
    backend.carry_out(stop(), 1_000)
    assert backend.events(2_000) == [Failed(start().id, "bad luck")]
    backend.carry_out(start(attempt=2), 2_000)
    assert AttemptEnded("a", 2, Outcome.SUCCEEDED) in backend.events(60_000)


def test_a_lost_start_is_there_and_can_be_stopped() -> None:
    backend = virtual_backend({"a": 10}, fault=faulty(Lost, Start))
    backend.carry_out(start(), 0)
    assert backend.events(1_000) == [Lost(start().id)]
    backend.carry_out(stop(), 1_000)
    assert backend.events(1_000) == [Done(stop().id)]


def test_a_job_whose_stop_fails_runs_on_and_ends_by_itself() -> None:
    backend = virtual_backend({"a": 10_000}, fault=faulty(Failed, Stop))
    backend.carry_out(start(), 0)
    backend.events(0)
    backend.carry_out(stop(), 1_000)
    assert backend.events(60_000) == [Failed(stop().id, "as told"), AttemptEnded("a", 1, Outcome.SUCCEEDED)]


def test_a_run_jumps_from_event_to_event_until_nothing_is_left() -> None:
    jobs = [(0, a_job("a", 1)), (500, a_job("b", 1))]
    run = Run.of(flat(1, 1), "fifo", virtual_backend({"a": 1_000, "b": 1_000}, start_ms=100), submissions(jobs))
    state = run.finish()
    assert [record.state for record in state.jobs.values()] == [JobState.SUCCEEDED] * 2
    assert state.jobs["a"].ended_ms == 1_100
    assert state.jobs["b"].first_start_ms == 1_200
    assert state.jobs["b"].ended_ms == 2_200


def test_of_one_moment_ends_come_before_arrivals() -> None:
    jobs = [(0, a_job("a", 1)), (1_000, a_job("b", 1))]
    run = Run.of(flat(1, 1), "fifo", virtual_backend({"a": 1_000, "b": 1}), submissions(jobs))
    assert run.finish().jobs["b"].first_start_ms == 1_000


def test_a_run_whose_job_never_ends_comes_to_rest_with_it_running() -> None:
    run = Run.of(flat(1, 1), "fifo", virtual_backend({}), submissions([(0, a_job("a"))]))
    assert run.finish().jobs["a"].state is JobState.RUNNING


def test_a_run_that_never_comes_to_rest_says_so() -> None:
    run = Run.of(flat(1, 1), "fifo", virtual_backend({}, fault=faulty(Failed, Start)), submissions([(0, a_job("a"))]))
    with pytest.raises(RuntimeError, match="did not come to an end within 50 steps"):
        run.finish(steps_max=50)


def test_a_cancelled_job_is_gone_when_its_stop_is_done() -> None:
    arrivals: list[tuple[int, Event]] = [(0, JobSubmitted(a_job("a"))), (2_000, JobCancelled("a"))]
    run = Run.of(flat(1, 1), "fifo", virtual_backend({"a": 10_000}, stop_ms=700), arrivals)
    record = run.finish().jobs["a"]
    assert (record.state, record.ended_ms) == (JobState.CANCELLED, 2_700)


def test_a_run_is_over_with_its_last_event() -> None:
    """The time-out of a start that was answered long ago wakes nobody."""
    jobs = [(0, a_job("a")), (1_000, a_job("b"))]
    run = Run.of(flat(1, 2), "fifo", virtual_backend({"a": 5_000, "b": 2_000}, start_ms=100), submissions(jobs))
    assert run.finish().now == 5_100
