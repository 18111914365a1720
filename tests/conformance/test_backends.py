"""What every backend must do. The real engine decides, a shim spoils the line, and the world is looked at itself."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
from needs import about, spares
from programs import Program
from rig import GRACE_MS, Rig

from builders import a_job
from phalanx.backends.capability import Capability
from phalanx.backends.faulty import Holding, doubling, losing
from phalanx.backends.live import Adopted
from phalanx.cluster.cluster import Health
from phalanx.cluster.device import Mode, Portion
from phalanx.engine.state.records import JobState, Phase
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import ActionId, Resize, Resume, Start, Stop, Suspend
from phalanx.protocol.event import Done, Failed, Outcome
from phalanx.workload.share import turn_ask

START_TIMEOUT_MS = 600_000
FIRST = ActionId(1, "a", 1, 0)


def slots(count: int, first: int = 0) -> tuple[Slot, ...]:
    """Tasks of one GPU on the first node."""
    return tuple(Slot(rank, "worker", "n0", (rank,)) for rank in range(first, first + count))


def begin(rig: Rig, program: Program, count: int = 1, action: ActionId = FIRST) -> None:
    """Starts job `a` without the engine."""
    rig.subject.job(a_job("a", 1, (1, 4), grace_ms=GRACE_MS), program)
    assert rig.ask(Start(action, Placement(slots(count)))) == Done(action)


def living(rig: Rig, job: str, count: int) -> None:
    """Waits until so many tasks of a job live."""
    rig.until(lambda: rig.subject.living(job) == count)


@about(Program.FOREVER)
def test_a_start_is_done_when_every_task_runs(rig: Rig) -> None:
    rig.run("a", Program.FOREVER, count=3)
    assert rig.subject.living("a") == 3


@about(Program.FOREVER)
@pytest.mark.parametrize("rank", range(4))
def test_a_gang_of_which_one_task_does_not_start_returns_its_whole_claim(rig: Rig, rank: int) -> None:
    rig.subject.sabotage("a", rank)
    rig.submit("a", Program.FOREVER, gpus=2, count=4)
    rig.until(lambda: any(isinstance(event, Failed) for event in rig.seen))
    assert rig.subject.living("a") == 0
    assert rig.record("a").attempt is None
    assert rig.state.capacity.free_gpus(rig.state.capacity.open) == 8


@about(Program.FOREVER)
@spares("ray", "slurm")
def test_a_gang_that_did_not_start_is_started_again(rig: Rig) -> None:
    rig.subject.sabotage("a", 1)
    rig.submit("a", Program.FOREVER, count=2)
    rig.until(rig.is_in("a", JobState.RUNNING))
    assert rig.record("a").attempts == 2
    living(rig, "a", 2)


@about(Program.NOT_THERE)
def test_a_command_that_is_not_there_fails_the_job_for_good(rig: Rig) -> None:
    rig.submit("a", Program.NOT_THERE, count=2)
    assert rig.finish("a").final is JobState.FAILED
    assert rig.record("a").attempts == 1
    assert "no such program" in rig.record("a").end_reason


@about(Program.RANK_FAILS)
@pytest.mark.parametrize("rank", range(4))
def test_a_gang_of_which_one_task_fails_ends_as_a_whole(rig: Rig, rank: int) -> None:
    rig.submit("a", Program.RANK_FAILS, gpus=2, count=4, labels=(("failing", str(rank)),))
    assert rig.finish("a").final is JobState.FAILED
    assert rig.endings("a")[0].exit_code == 7
    assert f"task {rank} " in rig.endings("a")[0].reason
    assert rig.subject.living("a") == 0


@about(Program.FOREVER)
def test_a_start_asked_for_twice_is_done_once(rig: Rig) -> None:
    rig.line.bend_action = doubling(lambda action: isinstance(action, Start))
    rig.run("a", Program.FOREVER, count=2)
    assert rig.subject.living("a") == 2


@about(Program.SUCCEED, Capability.ADOPT)
@spares("ray")
def test_a_start_asked_for_again_after_the_end_starts_nothing(rig: Rig) -> None:
    begin(rig, Program.SUCCEED)
    rig.until(lambda: rig.endings("a"))
    assert rig.ask(Start(FIRST, Placement(slots(1)))) == Done(FIRST)
    assert rig.subject.living("a") == 0


@about(Program.FOREVER)
def test_a_stop_asked_for_twice_is_done_once(rig: Rig) -> None:
    rig.run("a", Program.FOREVER)
    rig.line.bend_action = doubling(lambda action: isinstance(action, Stop))
    rig.cancel("a")
    assert rig.finish("a").final is JobState.CANCELLED
    assert rig.subject.living("a") == 0


@about(Program.FOREVER)
@spares("ray", "slurm")
def test_answers_told_twice_change_nothing(rig: Rig) -> None:
    rig.line.bend_event = doubling(lambda event: True)
    rig.run("a", Program.FOREVER)
    rig.cancel("a")
    assert rig.finish("a").final is JobState.CANCELLED


@about(Program.FOREVER, Capability.ADOPT)
@spares("ray")
def test_a_start_that_comes_after_its_stop_starts_nothing(rig: Rig) -> None:
    rig.line.bend_action = held = Holding(lambda action: isinstance(action, Start))
    rig.submit("a", Program.FOREVER)
    rig.cancel("a")
    assert rig.finish("a").final is JobState.CANCELLED
    answer = rig.ask(held.held[0])
    assert isinstance(answer, Failed)
    assert not answer.retryable
    assert rig.subject.living("a") == 0


@about(Program.FOREVER, Capability.ADOPT)
@spares("ray")
def test_a_resume_that_comes_after_the_stop_wakes_nobody(rig: Rig) -> None:
    begin(rig, Program.FOREVER)
    assert rig.ask(Stop(ActionId(1, "a", 1, 3), GRACE_MS, "cancelled")) == Done(ActionId(1, "a", 1, 3))
    answer = rig.ask(Resume(ActionId(1, "a", 1, 2)))
    assert isinstance(answer, Failed)
    assert not answer.retryable


@about(Program.FOREVER)
@spares("ray", "slurm")
def test_a_start_that_got_lost_is_made_up_for_by_a_new_attempt(rig: Rig) -> None:
    rig.line.bend_action = losing(lambda action: isinstance(action, Start))
    rig.submit("a", Program.FOREVER)
    rig.subject.jump(START_TIMEOUT_MS + 1)
    rig.until(rig.is_in("a", JobState.RUNNING))
    assert rig.record("a").attempts == 2
    living(rig, "a", 1)


@about(Program.FOREVER)
@spares("ray")
def test_an_attempt_whose_start_was_not_acknowledged_is_stopped_before_the_next(rig: Rig) -> None:
    rig.line.bend_event = losing(lambda event: isinstance(event, Done))
    rig.submit("a", Program.FOREVER)
    living(rig, "a", 1)
    rig.subject.jump(START_TIMEOUT_MS + 1)
    rig.until(rig.is_in("a", JobState.RUNNING))
    assert rig.record("a").attempts == 2
    living(rig, "a", 1)


@about(Program.FOREVER)
@spares("ray")
def test_a_stop_that_got_lost_is_asked_for_again(rig: Rig) -> None:
    rig.run("a", Program.FOREVER)
    rig.line.bend_action = losing(lambda action: isinstance(action, Stop))
    rig.cancel("a")
    rig.subject.jump(GRACE_MS + 60_000)
    rig.turn()
    rig.subject.jump(60_000)
    assert rig.finish("a").final is JobState.CANCELLED
    assert rig.subject.living("a") == 0


@about(Program.FOREVER)
@spares("ray")
def test_a_stop_that_was_not_acknowledged_is_asked_for_again(rig: Rig) -> None:
    rig.run("a", Program.FOREVER)
    rig.line.bend_event = losing(lambda event: isinstance(event, Done))
    rig.cancel("a")
    living(rig, "a", 0)
    rig.subject.jump(GRACE_MS + 60_000)
    rig.turn()
    rig.subject.jump(60_000)
    assert rig.finish("a").final is JobState.CANCELLED


@about(Program.FOREVER, Capability.ADOPT)
@spares("ray")
def test_a_start_that_was_delayed_beyond_the_next_attempt_is_refused(rig: Rig) -> None:
    rig.line.bend_action = held = Holding(lambda action: isinstance(action, Start) and action.id.attempt == 1)
    rig.submit("a", Program.FOREVER)
    rig.subject.jump(START_TIMEOUT_MS + 1)
    rig.until(rig.is_in("a", JobState.RUNNING))
    answer = rig.ask(held.held[0])
    assert isinstance(answer, Failed)
    assert not answer.retryable
    assert rig.subject.living("a") == 1


@about(Program.FOREVER)
@spares("ray")
def test_an_action_of_an_older_term_is_refused(rig: Rig) -> None:
    begin(rig, Program.FOREVER, action=ActionId(3, "a", 1, 0))
    answer = rig.ask(Stop(ActionId(2, "a", 1, 1), GRACE_MS, "cancelled"))
    assert isinstance(answer, Failed)
    assert not answer.retryable
    assert rig.subject.living("a") == 1


@about(Program.FOREVER)
@spares("ray")
def test_a_newer_term_takes_over_what_an_older_one_started(rig: Rig) -> None:
    begin(rig, Program.FOREVER, action=ActionId(3, "a", 1, 0))
    stop = ActionId(4, "a", 1, 1)
    assert rig.ask(Stop(stop, GRACE_MS, "cancelled")) == Done(stop)
    assert rig.subject.living("a") == 0


@about(Program.FOREVER)
@spares("ray")
def test_an_action_for_an_older_attempt_is_refused(rig: Rig) -> None:
    begin(rig, Program.FOREVER, action=ActionId(1, "a", 2, 0))
    answer = rig.ask(Stop(ActionId(1, "a", 1, 1), GRACE_MS, "cancelled"))
    assert isinstance(answer, Failed)
    assert not answer.retryable
    assert rig.subject.living("a") == 1


@about(Program.FOREVER, Capability.ADOPT)
@spares("ray")
def test_a_term_is_remembered_beyond_a_crash(apart: Rig) -> None:
    begin(apart, Program.FOREVER, action=ActionId(3, "a", 1, 0))
    apart.subject.crash()
    rig = Rig(apart.subject, apart=True)
    answer = rig.ask(Stop(ActionId(2, "a", 1, 1), GRACE_MS, "cancelled"))
    assert isinstance(answer, Failed)
    assert rig.subject.living("a") == 1


@about(Program.FOREVER, Capability.ADOPT)
@spares("ray")
def test_what_an_older_leader_asked_for_is_finished_for_the_one_who_takes_over(apart: Rig) -> None:
    begin(apart, Program.FOREVER, action=ActionId(3, "a", 1, 0))
    apart.subject.crash()
    rig = Rig(apart.subject, apart=True)
    asked = Stop(ActionId(2, "a", 1, 1), GRACE_MS, "cancelled")
    rig.subject.adopt([Adopted("a", 1, (asked,))], rig.subject.now())
    rig.until(lambda: Done(asked.id) in rig.seen)
    assert rig.subject.living("a") == 0


@about(Program.FOREVER)
def test_a_job_can_be_cancelled_while_it_starts(rig: Rig) -> None:
    rig.submit("a", Program.FOREVER, count=3)
    rig.cancel("a")
    assert rig.finish("a").final is JobState.CANCELLED
    assert rig.subject.living("a") == 0


@about(Program.POLITE, Capability.NOTICE)
def test_a_task_that_minds_notice_leaves_before_the_grace_is_over(rig: Rig) -> None:
    rig.run("a", Program.POLITE, grace_ms=60_000)
    began_ms = rig.subject.now()
    rig.cancel("a")
    assert rig.finish("a").final is JobState.CANCELLED
    assert rig.subject.now() - began_ms < 60_000


@about(Program.DEAF, Capability.NOTICE)
def test_a_task_that_minds_no_notice_is_killed_when_the_grace_is_over_and_not_before(rig: Rig) -> None:
    rig.run("a", Program.DEAF, grace_ms=400)
    began_ms = rig.subject.now()
    rig.cancel("a")
    assert rig.finish("a").final is JobState.CANCELLED
    assert rig.subject.now() - began_ms >= 400
    assert rig.subject.living("a") == 0


@about(Program.DEAF, Capability.NOTICE)
def test_no_grace_is_no_wait(rig: Rig) -> None:
    begin(rig, Program.DEAF)
    stop = ActionId(1, "a", 1, 1)
    assert rig.ask(Stop(stop, 0, "cancelled")) == Done(stop)
    assert rig.subject.living("a") == 0


@about(Program.DEAF, Capability.NOTICE)
def test_a_second_stop_can_shorten_the_grace(rig: Rig) -> None:
    begin(rig, Program.DEAF)
    rig.line.inner.carry_out(Stop(ActionId(1, "a", 1, 1), 3_600_000, "preempted"), rig.subject.now())
    stop = ActionId(1, "a", 1, 2)
    assert rig.ask(Stop(stop, 0, "cancelled")) == Done(stop)


@about(Program.FAMILY)
def test_a_stop_ends_children_that_left_their_process_group(rig: Rig) -> None:
    rig.run("a", Program.FAMILY)
    rig.until(lambda: len(rig.subject.processes("a")) >= 4)
    rig.cancel("a")
    rig.finish("a")
    assert rig.subject.processes("a") == []


@about(Program.SUCCEED)
def test_a_stop_of_what_has_ended_by_itself_is_done(rig: Rig) -> None:
    begin(rig, Program.SUCCEED)
    stop = ActionId(1, "a", 1, 1)
    assert rig.ask(Stop(stop, GRACE_MS, "cancelled")) == Done(stop)


@about(Program.FOREVER)
@spares("ray")
def test_a_stop_of_what_never_started_is_done(rig: Rig) -> None:
    stop = ActionId(1, "a", 1, 1)
    assert rig.ask(Stop(stop, GRACE_MS, "cancelled")) == Done(stop)


@about(Program.FOREVER, Capability.ADOPT)
@spares("ray")
def test_what_does_not_run_cannot_be_suspended(rig: Rig) -> None:
    assert isinstance(rig.ask(Suspend(FIRST)), Failed)


@about(Program.FOREVER)
def test_a_victim_leaves_runs_no_more_beside_the_preemptor_and_comes_back(rig: Rig) -> None:
    rig.run("a", Program.FOREVER, gpus=4, count=2)
    rig.submit("b", Program.FOREVER, gpus=4, count=2, priority=100)
    rig.until(rig.is_in("b", JobState.RUNNING))
    assert rig.subject.living("a") == 0
    assert rig.record("a").preemptions == 1
    rig.cancel("b")
    rig.until(rig.is_in("a", JobState.RUNNING))
    assert rig.record("a").attempts == 2


@about(Program.FOREVER)
@spares("ray", "slurm")
def test_a_preemptor_cancelled_while_its_victims_drain_leaves_the_devices_to_them(rig: Rig) -> None:
    rig.run("a", Program.FOREVER, gpus=4, count=2)
    rig.submit("b", Program.FOREVER, gpus=4, count=2, priority=100)
    assert rig.record("a").state is JobState.STOPPING
    rig.cancel("b")
    assert rig.record("b").final is JobState.CANCELLED
    rig.until(rig.is_in("a", JobState.RUNNING))
    living(rig, "a", 2)


@about(Program.POLITE, Capability.NOTICE)
@spares("ray", "slurm")
def test_a_victim_that_exits_with_0_on_notice_has_not_succeeded(rig: Rig) -> None:
    rig.run("a", Program.POLITE, gpus=4, count=2)
    rig.submit("b", Program.FOREVER, gpus=4, count=2, priority=100)
    rig.until(rig.is_in("b", JobState.RUNNING))
    assert rig.record("a").state is JobState.WAITING


@about(Program.SUCCEED)
def test_a_job_whose_tasks_all_exit_with_0_has_succeeded(rig: Rig) -> None:
    rig.submit("a", Program.SUCCEED, count=3)
    assert rig.finish("a").final is JobState.SUCCEEDED
    assert len(rig.endings("a")) == 1


@about(Program.FAIL)
@spares("ray", "slurm")
def test_a_failure_is_told_once(rig: Rig) -> None:
    rig.submit("a", Program.FAIL, count=3)
    assert rig.finish("a").final is JobState.FAILED
    assert [ending.outcome for ending in rig.endings("a")] == [Outcome.FAILED]


@about(Program.FAIL, Capability.LOGS)
def test_an_exit_code_is_told(rig: Rig) -> None:
    rig.submit("a", Program.FAIL)
    rig.finish("a")
    assert rig.endings("a")[0].exit_code == 3
    assert rig.endings("a")[0].reason.startswith("exit 3: ")


@about(Program.CRASH)
def test_a_signal_is_told_apart_from_an_exit_code(rig: Rig) -> None:
    rig.submit("a", Program.CRASH)
    rig.finish("a")
    assert rig.endings("a")[0].exit_code == 128 + signal.SIGSEGV
    assert rig.endings("a")[0].reason.startswith("signal SIGSEGV: ")


@about(Program.HUNGRY, Capability.OOM)
def test_running_out_of_memory_is_told_apart_from_a_signal(rig: Rig) -> None:
    rig.submit("a", Program.HUNGRY, task={"memory_mb": 32})
    rig.finish("a")
    assert rig.endings("a")[0].reason.startswith("oom: ")


@about(Program.FAIL_ONCE)
@spares("ray", "slurm")
def test_a_job_that_may_be_tried_again_is(rig: Rig) -> None:
    rig.submit("a", Program.FAIL_ONCE, retry_limit=1)
    assert rig.finish("a").final is JobState.SUCCEEDED
    assert rig.record("a").attempts == 2


@about(Program.FAIL)
@spares("ray", "slurm")
def test_a_job_is_not_tried_again_for_ever(rig: Rig) -> None:
    rig.submit("a", Program.FAIL, retry_limit=1)
    assert rig.finish("a").final is JobState.FAILED
    assert rig.record("a").attempts == 2


@about(Program.SHORT)
def test_an_end_that_meets_its_stop_is_one_end(rig: Rig) -> None:
    rig.submit("a", Program.SHORT)
    # On a busy machine its start and its end are told in one turn: it is never seen running.
    rig.until(lambda: rig.record("a").state is JobState.RUNNING or rig.record("a").final is not None)
    rig.until(lambda: rig.subject.living("a") == 0)
    if rig.record("a").final is None:
        rig.cancel("a")
    assert rig.finish("a").final in (JobState.SUCCEEDED, JobState.CANCELLED)


@about(Program.SUCCEED)
def test_many_short_jobs_all_end_and_give_everything_back(rig: Rig) -> None:
    for i in range(12):
        rig.submit(f"j{i}", Program.SUCCEED)
    for i in range(12):
        assert rig.finish(f"j{i}").final is JobState.SUCCEEDED
    assert rig.state.capacity.free_gpus(rig.state.capacity.open) == 8


def lose_node(rig: Rig) -> None:
    """Node n0 fails: job `a`, which was there, goes on on n1."""
    rig.health("n0", Health.FAILED)
    rig.until(lambda: rig.record("a").state is JobState.RUNNING and rig.attempt("a").placement.nodes == ("n1",))
    living(rig, "a", rig.tasks("a"))


@about(Program.FOREVER)
@spares("ray", "slurm")
def test_a_job_whose_node_is_lost_while_it_has_only_a_claim_is_placed_elsewhere(rig: Rig) -> None:
    rig.run("low", Program.FOREVER, gpus=4, count=1)
    rig.run("other", Program.FOREVER, gpus=4, count=1, priority=200)
    rig.submit("a", Program.FOREVER, gpus=4, priority=100)
    assert rig.attempt("a").phase is Phase.CLAIMED
    rig.cancel("other")
    rig.health(rig.attempt("a").placement.nodes[0], Health.FAILED)
    rig.until(rig.is_in("a", JobState.RUNNING))
    living(rig, "a", 1)


@about(Program.FOREVER)
def test_a_job_whose_node_is_lost_while_it_starts_is_started_elsewhere(rig: Rig) -> None:
    rig.submit("a", Program.FOREVER, gpus=2, count=2)
    assert rig.attempt("a").phase is Phase.STARTING
    lose_node(rig)


@about(Program.FOREVER)
@spares("ray", "slurm")
def test_a_job_whose_node_is_lost_while_it_runs_goes_on_elsewhere(rig: Rig) -> None:
    rig.run("a", Program.FOREVER, gpus=2, count=2)
    lose_node(rig)


@about(Program.FOREVER)
@spares("ray", "slurm")
def test_a_job_whose_node_is_lost_while_it_stops_stops(rig: Rig) -> None:
    rig.run("a", Program.FOREVER)
    rig.cancel("a")
    rig.health("n0", Health.FAILED)
    assert rig.finish("a").final is JobState.CANCELLED
    assert rig.subject.living("a") == 0


@about(Program.FOREVER, Capability.RESIZE)
@spares("ray", "slurm")
def test_a_job_whose_node_is_lost_while_it_grows_goes_on_elsewhere(rig: Rig) -> None:
    rig.run("b", Program.FOREVER, gpus=4, priority=10)
    rig.run("a", Program.FOREVER, gpus=1, count=(2, 8))
    rig.cancel("b")
    rig.finish("b")
    rig.until(lambda: rig.attempt("a").phase is Phase.RESIZING or rig.tasks("a") == 8)
    rig.health("n0", Health.FAILED)
    rig.until(lambda: rig.record("a").state is JobState.RUNNING and rig.attempt("a").placement.nodes == ("n1",))
    living(rig, "a", 4)


@about(Program.FOREVER, Capability.RESIZE)
@spares("ray")
def test_a_job_grows_into_what_becomes_free_and_its_tasks_stay(rig: Rig) -> None:
    rig.run("b", Program.FOREVER, gpus=4, count=1, priority=10)
    rig.run("a", Program.FOREVER, gpus=1, count=(2, 8))
    rig.cancel("b")
    rig.until(lambda: rig.tasks("a") == 8)
    living(rig, "a", 8)
    assert rig.record("a").attempts == 1


@about(Program.FOREVER, Capability.RESIZE)
def test_a_job_shrinks_to_make_room_and_grows_again(rig: Rig) -> None:
    rig.run("a", Program.FOREVER, gpus=1, count=(2, 8))
    rig.submit("b", Program.FOREVER, gpus=4, priority=100)
    rig.until(rig.is_in("b", JobState.RUNNING))
    assert rig.subject.living("a") == 4
    assert rig.record("a").attempts == 1
    rig.cancel("b")
    rig.until(lambda: rig.tasks("a") == 8)
    living(rig, "a", 8)


@about(Program.FOREVER, Capability.RESIZE)
def test_a_resize_asked_for_twice_is_done_once(rig: Rig) -> None:
    rig.line.bend_action = doubling(lambda action: isinstance(action, Resize))
    rig.run("b", Program.FOREVER, gpus=4, priority=10)
    rig.run("a", Program.FOREVER, gpus=1, count=(2, 8))
    rig.cancel("b")
    rig.until(lambda: rig.tasks("a") == 8)
    living(rig, "a", 8)


@about(Program.FOREVER, Capability.RESIZE, Capability.LOGS)
def test_a_growth_of_which_one_task_does_not_start_leaves_the_others_as_they_were(rig: Rig) -> None:
    begin(rig, Program.FOREVER, count=2)
    rig.subject.sabotage("a", 3)
    resize = ActionId(1, "a", 1, 1)
    answer = rig.ask(Resize(resize, Placement(slots(4))))
    assert isinstance(answer, Failed)
    assert rig.subject.living("a") == 2


@about(Program.DEAF, Capability.RESIZE, Capability.NOTICE)
def test_a_member_that_does_not_leave_is_killed_when_its_grace_is_over(rig: Rig) -> None:
    begin(rig, Program.DEAF, count=3)
    resize = ActionId(1, "a", 1, 1)
    assert rig.ask(Resize(resize, Placement(slots(1)))) == Done(resize)
    assert rig.subject.living("a") == 1


TURN = Portion(Mode.TURNS, 500, 0, turns=2, turn=1)


def shared(portion: Portion) -> Placement:
    """Two tasks with a part of a device each."""
    return Placement(tuple(replace(slot, portion=portion) for slot in slots(2)))


@about(Program.FOREVER, Capability.RESIZE)
def test_a_resize_that_only_changes_what_shares_are_worth_is_done_and_every_task_stays(rig: Rig) -> None:
    """Jobs are packed on their devices and take turns again: nobody joins or leaves."""
    rig.subject.job(a_job("a", 1, 2, grace_ms=GRACE_MS), Program.FOREVER)
    assert rig.ask(Start(FIRST, shared(TURN))) == Done(FIRST)
    for seq, beside in enumerate(("b", ""), start=1):
        resize = ActionId(1, "a", 1, seq)
        assert rig.ask(Resize(resize, shared(replace(TURN, beside=beside)))) == Done(resize)
        assert rig.subject.living("a") == 2
    assert rig.endings("a") == []


@about(Program.FOREVER, Capability.RESIZE, Capability.LOGS)
@spares("ray")
def test_processes_stay_while_what_their_shares_are_worth_changes(rig: Rig) -> None:
    rig.subject.job(a_job("a", 1, 2, grace_ms=GRACE_MS), Program.FOREVER)
    assert rig.ask(Start(FIRST, shared(TURN))) == Done(FIRST)
    before = sorted(each.pid for each in rig.subject.processes("a"))
    resize = ActionId(1, "a", 1, 1)
    assert rig.ask(Resize(resize, shared(replace(TURN, beside="b")))) == Done(resize)
    assert sorted(each.pid for each in rig.subject.processes("a")) == before


@about(Program.TICKING, Capability.SUSPEND, Capability.LOGS)
def test_a_suspended_attempt_does_nothing_until_it_is_resumed(rig: Rig) -> None:
    begin(rig, Program.TICKING, count=2)
    rig.until(lambda: all(rig.subject.printed("a", rank) for rank in range(2)))
    suspend, resume = ActionId(1, "a", 1, 1), ActionId(1, "a", 1, 2)
    assert rig.ask(Suspend(suspend)) == Done(suspend)
    printed = [rig.subject.printed("a", rank) for rank in range(2)]
    for _ in range(5):
        rig.subject.wait(None)
        assert [rig.subject.printed("a", rank) for rank in range(2)] == printed
    assert rig.ask(Resume(resume)) == Done(resume)
    rig.until(lambda: all(rig.subject.printed("a", rank) > printed[rank] for rank in range(2)))


@about(Program.POLITE, Capability.SUSPEND, Capability.NOTICE)
def test_a_suspended_attempt_hears_notice(rig: Rig) -> None:
    begin(rig, Program.POLITE)
    suspend, stop = ActionId(1, "a", 1, 1), ActionId(1, "a", 1, 2)
    assert rig.ask(Suspend(suspend)) == Done(suspend)
    assert rig.ask(Stop(stop, 3_600_000, "preempted")) == Done(stop)


@about(Program.FOREVER, Capability.SUSPEND, Capability.ADOPT)
def test_what_is_not_suspended_cannot_be_resumed(rig: Rig) -> None:
    begin(rig, Program.FOREVER)
    assert isinstance(rig.ask(Resume(ActionId(1, "a", 1, 1))), Failed)


@about(Program.FOREVER, Capability.SUSPEND)
def test_a_suspended_attempt_can_be_stopped(rig: Rig) -> None:
    begin(rig, Program.FOREVER)
    suspend, stop = ActionId(1, "a", 1, 1), ActionId(1, "a", 1, 2)
    assert rig.ask(Suspend(suspend)) == Done(suspend)
    assert rig.ask(Stop(stop, GRACE_MS, "hardware")) == Done(stop)
    assert rig.subject.living("a") == 0


def take_turns(rig: Rig, program: Program) -> None:
    """Jobs a and b of two tasks each, all four on one device in turns."""
    for name in ("a", "b"):
        rig.run(name, program, count=2, task={"share": turn_ask(4)})
    places = [{(slot.node, *slot.devices) for slot in rig.attempt(name).placement.slots} for name in ("a", "b")]
    assert places[0] == places[1], "they share"


def switches(rig: Rig, count: int) -> None:
    """Looks on until the turn has gone from one to the other so often. At most one of the two gets on between two
    looks, but for the look in which it goes.
    """
    printed, had_it, both, gone = {"a": 0, "b": 0}, "", 0, 0

    def look() -> bool:
        nonlocal had_it, both, gone
        now = {name: sum(rig.subject.printed(name, rank) for rank in range(2)) for name in printed}
        got_on = [name for name in printed if now[name] > printed[name]]
        printed.update(now)
        both += len(got_on) == 2
        if len(got_on) == 1 and got_on[0] != had_it:
            had_it, gone = got_on[0], gone + 1
        return gone > count

    rig.until(look)
    assert both <= gone + 2


@about(Program.TICKING, Capability.TURNS, Capability.LOGS)
def test_gangs_that_take_turns_on_their_devices_run_one_after_the_other(rig: Rig) -> None:
    take_turns(rig, Program.TICKING)
    switches(rig, 6)


@about(Program.POLITE, Capability.TURNS, Capability.NOTICE)
def test_one_whose_turn_it_is_not_hears_notice_all_the_same(rig: Rig) -> None:
    take_turns(rig, Program.POLITE)
    for name in ("a", "b"):
        stop = ActionId(1, name, 1, 1)
        assert rig.ask(Stop(stop, 3_600_000, "preempted")) == Done(stop)


@about(Program.TICKING, Capability.TURNS, Capability.SUSPEND, Capability.LOGS)
def test_one_that_is_suspended_is_passed_over_until_it_is_resumed(rig: Rig) -> None:
    take_turns(rig, Program.TICKING)
    suspend, resume = ActionId(1, "a", 1, 1), ActionId(1, "a", 1, 2)
    assert rig.ask(Suspend(suspend)) == Done(suspend)
    printed = rig.subject.printed("a", 0), rig.subject.printed("b", 0)
    rig.until(lambda: rig.subject.printed("b", 0) > printed[1] + 500)
    assert rig.subject.printed("a", 0) == printed[0]
    assert rig.ask(Resume(resume)) == Done(resume)
    switches(rig, 3)


@about(Program.TICKING, Capability.TURNS, Capability.RESIZE, Capability.LOGS)
def test_two_that_are_packed_run_at_the_same_time(rig: Rig) -> None:
    take_turns(rig, Program.TICKING)
    for name, other in (("a", "b"), ("b", "a")):
        slots = rig.attempt(name).placement.slots
        packed = tuple(replace(slot, portion=replace(slot.portion, beside=other)) for slot in slots if slot.portion)
        resize = ActionId(1, name, 1, 1)
        assert rig.ask(Resize(resize, Placement(packed))) == Done(resize)
    printed = {name: rig.subject.printed(name, 0) for name in ("a", "b")}
    rig.until(lambda: all(rig.subject.printed(name, 0) > printed[name] + 500 for name in printed))


@about(Program.TICKING, Capability.TURNS, Capability.ADOPT, Capability.LOGS)
def test_turns_go_round_again_after_a_crash(apart: Rig) -> None:
    take_turns(apart, Program.TICKING)
    apart.crash()
    switches(apart, 4)
    assert apart.record("a").attempts == apart.record("b").attempts == 1


@about(Program.FOREVER, Capability.ADOPT)
@spares("ray")
def test_a_start_that_was_decided_and_not_sent_is_made_after_a_crash(apart: Rig) -> None:
    apart.line.bend_action = losing(lambda action: isinstance(action, Start))
    apart.submit("a", Program.FOREVER, count=2)
    apart.crash()
    apart.until(apart.is_in("a", JobState.RUNNING))
    assert apart.record("a").attempts == 1
    living(apart, "a", 2)


@about(Program.FOREVER, Capability.ADOPT)
@pytest.mark.parametrize("trial", range(5))
def test_a_job_that_was_starting_runs_once_after_a_crash(apart: Rig, trial: int) -> None:
    apart.submit("a", Program.FOREVER, count=2)
    # Each trial looks a little longer, so that the crash falls into another moment of the start.
    for _ in range(trial):
        apart.subject.wait(None)
    apart.crash()
    apart.until(apart.is_in("a", JobState.RUNNING))
    assert apart.record("a").attempts == 1
    living(apart, "a", 2)


@about(Program.FOREVER, Capability.ADOPT)
def test_a_running_job_runs_on_through_a_crash_and_can_be_stopped(apart: Rig) -> None:
    apart.run("a", Program.FOREVER, count=2)
    apart.crash()
    assert apart.subject.living("a") == 2
    apart.turn()
    assert apart.record("a").state is JobState.RUNNING
    apart.cancel("a")
    assert apart.finish("a").final is JobState.CANCELLED
    assert apart.record("a").attempts == 1
    assert apart.subject.living("a") == 0


@about(Program.FOREVER, Capability.ADOPT)
@spares("ray", "slurm")
def test_a_job_survives_one_crash_after_another(apart: Rig) -> None:
    apart.run("a", Program.FOREVER)
    for _ in range(3):
        apart.crash()
    apart.turn()
    assert apart.record("a").state is JobState.RUNNING
    assert apart.subject.living("a") == 1


@about(Program.SHORT, Capability.ADOPT)
def test_an_end_during_the_outage_is_told_afterwards(apart: Rig) -> None:
    apart.run("a", Program.SHORT)
    apart.subject.crash()
    while apart.subject.living("a"):
        apart.subject.wait(None)
    apart.restart()
    assert apart.finish("a").final is JobState.SUCCEEDED
    assert apart.record("a").attempts == 1


@about(Program.RANK_FAILS, Capability.ADOPT)
@spares("ray")
def test_a_failure_during_the_outage_ends_the_gang_and_is_told_afterwards(apart: Rig) -> None:
    apart.submit("a", Program.RANK_FAILS, count=3, labels=(("failing", "1"),))
    apart.subject.crash()
    apart.restart()
    assert apart.finish("a").final is JobState.FAILED
    assert apart.endings("a")[-1].exit_code == 7
    assert apart.subject.living("a") == 0


@about(Program.DEAF, Capability.ADOPT)
@spares("ray")
def test_a_stop_under_way_is_finished_through_a_crash(apart: Rig) -> None:
    apart.run("a", Program.DEAF, grace_ms=700)
    apart.cancel("a")
    apart.crash()
    assert apart.finish("a").final is JobState.CANCELLED
    assert apart.subject.living("a") == 0


@about(Program.FOREVER, Capability.ADOPT)
@spares("ray")
def test_a_stop_that_was_decided_and_not_sent_is_made_after_a_crash(apart: Rig) -> None:
    apart.run("a", Program.FOREVER)
    apart.line.bend_action = losing(lambda action: isinstance(action, Stop))
    apart.cancel("a")
    apart.crash()
    assert apart.finish("a").final is JobState.CANCELLED
    assert apart.subject.living("a") == 0


@about(Program.FOREVER, Capability.ADOPT, Capability.SUSPEND)
@spares("ray")
def test_a_suspended_attempt_is_resumed_after_a_crash(apart: Rig) -> None:
    apart.run("a", Program.FOREVER)
    key = apart.attempt("a")
    suspend = ActionId(1, "a", key.number, key.next_seq)
    assert apart.ask(Suspend(suspend)) == Done(suspend)
    apart.crash()
    resume = ActionId(1, "a", key.number, key.next_seq + 1)
    assert apart.ask(Resume(resume)) == Done(resume)
    assert apart.subject.living("a") == 1


@about(Program.DEAF, Capability.ADOPT, Capability.RESIZE)
@spares("ray")
def test_a_resize_under_way_is_finished_through_a_crash(apart: Rig) -> None:
    apart.run("a", Program.DEAF, gpus=1, count=(2, 8), grace_ms=700)
    apart.submit("b", Program.FOREVER, gpus=4, priority=100)
    assert apart.attempt("a").phase is Phase.RESIZING
    apart.crash()
    apart.until(apart.is_in("b", JobState.RUNNING))
    assert apart.subject.living("a") == 4


@about(Program.FOREVER, Capability.ADOPT)
def test_what_runs_and_belongs_to_nobody_is_ended_after_a_crash(apart: Rig) -> None:
    apart.run("a", Program.FOREVER, count=2)
    apart.subject.crash()
    after = Rig(apart.subject, apart=True)
    after.subject.adopt((), after.subject.now())
    while apart.subject.living("a"):
        apart.subject.wait(None)


@about(Program.FAMILY, Capability.ADOPT)
def test_an_attempt_whose_keeper_was_killed_is_ended_wholly_and_tried_again(apart: Rig) -> None:
    apart.run("a", Program.FAMILY)
    apart.until(lambda: len(apart.subject.processes("a")) >= 4)
    first = [each.pid for each in apart.subject.processes("a")]
    os.kill(apart.subject.keeper("a"), signal.SIGKILL)
    apart.until(lambda: apart.record("a").attempts == 2 and apart.record("a").state is JobState.RUNNING)
    assert not any(each.pid in first for each in apart.subject.processes("a"))


@about(Program.CHATTY, Capability.LOGS)
def test_nothing_of_what_tasks_print_is_lost_however_fast_they_print(rig: Rig) -> None:
    rig.submit("a", Program.CHATTY, count=2)
    assert rig.finish("a").final is JobState.SUCCEEDED
    assert [rig.subject.printed("a", rank) for rank in range(2)] == [20_000_000, 20_000_000]


@about(Program.FOREVER)
@spares("ray", "slurm")
def test_a_clock_that_jumps_ahead_ends_nobody(rig: Rig) -> None:
    rig.run("a", Program.FOREVER)
    rig.subject.jump(86_400_000)
    rig.turn()
    assert rig.record("a").state is JobState.RUNNING
    assert rig.subject.living("a") == 1


@about(Program.FOREVER)
@spares("ray", "slurm")
def test_a_clock_that_is_set_back_confuses_nobody(rig: Rig) -> None:
    rig.run("a", Program.FOREVER)
    rig.subject.jump(-3_600_000)
    rig.turn()
    rig.cancel("a")
    rig.until(lambda: rig.subject.living("a") == 0)
    rig.until(lambda: rig.record("a").final is not None)
    assert rig.record("a").final is JobState.CANCELLED


@about(Program.POLITE, Capability.RESIZE, Capability.NOTICE)
def test_a_resize_that_moves_every_task_ends_the_old_ones_before_it_starts_the_new(rig: Rig) -> None:
    begin(rig, Program.POLITE, count=2)
    before = {each.pid for each in rig.subject.processes("a")}
    resize = ActionId(1, "a", 1, 1)
    elsewhere = tuple(Slot(rank, "worker", "n1", (rank,)) for rank in range(2))
    assert rig.ask(Resize(resize, Placement(elsewhere))) == Done(resize)
    assert rig.subject.living("a") == 2
    assert not before & {each.pid for each in rig.subject.processes("a")}
    assert rig.endings("a") == []
