"""What launchers find: of which task it is told, what of it becomes a record, and what it counts against a node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import World, a_job
from phalanx.cluster.cluster import Health, flat
from phalanx.engine.state.records import JobState
from phalanx.faults.health.blame import Blame
from phalanx.faults.health.quarantine import Rules
from phalanx.faults.health.watch import NodeWatch
from phalanx.protocol.event import AttemptEnded, Event, Finding, NodeHealthChanged, Outcome, Progress
from phalanx.server.loop.reports import AGAIN_MS, HOURLY_MAX, Reports
from phalanx.server.loop.wire import Found, ReportProgress
from phalanx.server.refusal import Refusal
from phalanx.server.store.lineage import Lineage
from phalanx.train.launch.cause import Cause
from phalanx.train.launch.epoch import Agent, Epoch
from phalanx.train.launch.stragglers import Verdict
from phalanx.train.launch.told import findings as launcher
from phalanx.train.launch.told.findings import Findings
from phalanx.words.findings import found_words

EPOCH = Epoch(1, (Agent("a", "10.0.0.1", 1, 2, task=0), Agent("b", "10.0.0.2", 1, 2, task=3)), "running")


def cause(rank: int, kind: str = "signal", **more: Any) -> Cause:
    return replace(Cause(kind, rank, "10.0.0.2", 1.0, "ended by SIGKILL"), **more)


def test_a_slow_rank_is_told_by_its_task_and_its_place_there() -> None:
    [found] = Findings().slow(EPOCH, Verdict(3, "10.0.0.2", True, "it computes long"))
    assert found == launcher.Finding("slow", 3, "it computes long", rank=3, local_rank=1)
    [found] = Findings().slow(EPOCH, Verdict(0, "10.0.0.1", False, "0.1 s a step"))
    assert (found.kind, found.task, found.local_rank) == ("recovered", 0, 0)


def test_the_first_cause_of_a_failure_is_told_by_its_kind() -> None:
    findings = Findings()
    assert [each.kind for each in findings.failed(EPOCH, cause(2, "hang"))] == ["hang"]
    assert [each.kind for each in findings.failed(EPOCH, cause(0, "exception"))] == ["failed"]
    [lost] = findings.failed(EPOCH, Cause("lost agent", -1, "10.0.0.2", 1.0, "the agent b was lost", agent="b"))
    assert (lost.kind, lost.task, lost.rank) == ("lost", 3, -1)


def test_a_task_that_is_the_first_cause_again_and_again_is_told_to_fail_its_ranks() -> None:
    findings = Findings()
    told = [[each.kind for each in findings.failed(EPOCH, cause(2))] for _ in range(launcher.FAILING_AFTER)]
    assert told == [["failed"], ["failed"], ["failed", "failing"]]
    assert [each.task for each in findings.failed(EPOCH, cause(3))] == [3, 3]


def test_where_all_tasks_fail_or_the_program_does_none_is_told_to_fail_its_ranks() -> None:
    findings = Findings()
    told = [findings.failed(EPOCH, cause(rank)) for rank in (0, 2) * 5]
    told += [Findings().failed(EPOCH, cause(2, "import", is_program=True)) for _ in range(5)]
    assert {each.kind for some in told for each in some} == {"failed"}


def test_outside_of_a_job_of_the_scheduler_nothing_is_told() -> None:
    epoch = Epoch(1, (Agent("a", "10.0.0.1", 1, 2),), "running")
    assert not Findings().failed(epoch, cause(0))
    assert not Findings().slow(epoch, Verdict(0, "10.0.0.1", True, "it computes long"))


def site(jobs: int = 1) -> World:
    """Eight nodes of four GPUs, and jobs j0, j1, … on two of them each."""
    world = World(flat(8, 4))
    world.submit(*(a_job(f"j{number}", 4, count=2, name=f"j{number}", user="ada") for number in range(jobs)))
    world.done(*(f"j{number}" for number in range(jobs)))
    return world


def heard(world: World, reports: Reports, *found: Found, now: int = 0, job: str = "j0") -> list[Event]:
    attempt = world.state.attempt(job, 1)
    assert attempt is not None
    return list(reports.events_of(attempt, ReportProgress(job, 1, findings=list(found), tells_progress=False), now))


def test_a_finding_is_of_the_node_and_the_device_that_the_state_knows_for_its_task() -> None:
    world = site()
    [event] = heard(world, Reports(world.state, Lineage()), Found("slow", 1, "it computes long", rank=6, local_rank=2))
    (first, second) = world.where("j0")
    assert event == Finding("j0", 1, "slow", 1, second, rank=6, device=2, text="it computes long")
    assert first != second
    world.turn(event)
    assert world.status("j0") is JobState.RUNNING


def test_a_finding_of_a_task_that_the_attempt_has_not_is_refused_and_nothing_of_the_report_is_taken() -> None:
    world = site()
    reports = Reports(world.state, Lineage())
    with pytest.raises(Refusal, match="finding of task 2: attempt j0/1 has 0, 1"):
        heard(world, reports, Found("hang", 0, "no progress"), Found("hang", 2, "no progress"))
    assert len(heard(world, reports, Found("hang", 0, "no progress"))) == 1


def test_a_report_of_progress_may_have_findings_and_one_of_findings_tells_no_progress() -> None:
    world = site()
    reports = Reports(world.state, Lineage())
    attempt = world.state.attempt("j0", 1)
    assert attempt is not None
    body = ReportProgress("j0", 1, step=7, findings=[Found("slow", 0, "long")])
    assert [type(event) for event in reports.events_of(attempt, body, 0)] == [Progress, Finding]
    assert [type(event) for event in heard(world, reports, Found("hang", 0, "no progress"))] == [Finding]


def test_the_same_is_heard_once_in_a_while_and_so_much_in_an_hour() -> None:
    world = site()
    reports = Reports(world.state, Lineage())
    said = [Found("slow", 0, "long"), Found("slow", 1, "long"), Found("hang", 0, "no progress")]
    assert len(heard(world, reports, *said, *said)) == 3
    assert not heard(world, reports, *said, now=AGAIN_MS - 1)
    assert len(heard(world, reports, *said, now=AGAIN_MS)) == 3
    kinds = [Found(f"kind{number}", 0, "made up") for number in range(2 * HOURLY_MAX)]
    assert len(heard(world, reports, *kinds, now=AGAIN_MS)) == HOURLY_MAX - 6
    assert len(heard(world, reports, *said, now=AGAIN_MS + 3_600_000)) == 3


class Ward:
    """A watch over the nodes of a site, and what it decides."""

    def __init__(self) -> None:
        self.world = site(4)
        self.watch = NodeWatch(self.world.state, Rules())
        self.watch.note(AttemptEnded("j3", 1, Outcome.SUCCEEDED), self.world.now)

    def find(self, job: str, node: str, kind: str = "slow") -> None:
        self.watch.note(Finding(job, 1, kind, 0, node), self.world.now)

    def fall(self) -> list[str]:
        found = self.watch.events(self.world.now, lambda: "none")
        return [each.node for each in found if isinstance(each, NodeHealthChanged) and each.health is Health.SUSPECT]


@pytest.mark.parametrize("kind", ["slow", "hang", "lost", "failing"])
def test_a_node_that_three_jobs_find_amiss_is_in_quarantine_and_two_do_not_do(kind: str) -> None:
    ward = Ward()
    for job in ("j0", "j1"):
        ward.find(job, "n5", kind)
    assert not ward.fall()
    ward.find("j2", "n5", kind)
    assert ward.fall() == ["n5"]


def test_the_reason_says_what_was_found() -> None:
    ward = Ward()
    for job, kind in (("j0", "slow"), ("j1", "hang"), ("j2", "slow")):
        ward.find(job, "n5", kind)
    [change] = ward.watch.changes(ward.world.now)
    assert change.reason.startswith("quarantine: 3 of 3 jobs failed there or found it amiss (slow, hangs), where 0.4 ")


def test_one_job_that_says_it_again_and_again_counts_once_and_what_a_program_does_counts_nothing() -> None:
    ward = Ward()
    for _ in range(50):
        ward.find("j0", "n5")
    for job in ("j0", "j1", "j2", "j3"):
        ward.find(job, "n6", "failed")
        ward.find(job, "n6", "recovered")
    assert not ward.fall()


def test_a_job_that_accuses_one_node_after_another_is_at_fault_itself_and_blames_none() -> None:
    ward = Ward()
    for node in (f"n{number}" for number in range(8)):
        for job in ("j0", "j1", "j2", "j3"):
            ward.find(job, node)
    assert not ward.fall()


def test_a_finding_and_the_failure_that_follows_are_one() -> None:
    blame = Blame.of(f"n{number}" for number in range(8))
    blame.found("a", "n1", "hangs", 0)
    blame.ended("a", frozenset({"n0", "n1"}), failed=True, now=0)
    assert (blame.books["n1"].failures(0), blame.books["n0"].failures(0)) == (1.0, 0.0)
    blame.ended("a", frozenset({"n3"}), failed=True, now=0)
    assert blame.books["n1"].failures(0) == 0.0, "it fails elsewhere, too"
    assert not blame.books["n1"].found_now()


def test_what_was_found_last_is_told_in_words() -> None:
    told = {"task": 1, "node": "n4", "rank": 6, "device": 2, "kind": "slow", "text": "it computes long"}
    lost = {**told, "rank": None, "device": None, "kind": "lost", "text": "the agent b was lost"}
    tries = [{"findings": [lost]}, {"findings": [told] * 4 + [lost]}, {"findings": []}]
    assert found_words(tries) == (
        "task 1 on n4 was lost: the agent b was lost; rank 6 on n4, GPU 2 is slow: it computes long; "
        "rank 6 on n4, GPU 2 is slow: it computes long; 2 before that"
    )
    assert found_words([{"findings": []}]) == ""
