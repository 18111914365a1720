"""The journal: lines that can be read again, errors that name the line, and a form that stays readable."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from builders import World, a_job, everything, places, stops
from phalanx.cluster.cluster import flat
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.state.journal import VERSION, Digest, Journal, Record, decode, encode
from phalanx.engine.turn import record, replay, verify
from phalanx.protocol.action import Action, ActionId, Resume, Suspend
from phalanx.protocol.event import AttemptEnded, JobCancelled, JobSubmitted, Outcome, TermBegun, TimerDue
from phalanx.protocol.plan import Plan
from phalanx.workload.job import Execution, UnixIdentity

GOLDEN = Path(__file__).parents[1] / "data" / "journal-v1.jsonl"
PATIENCE = Path(__file__).parents[1] / "data" / "journal-patience.jsonl"
CROWD = Path(__file__).parents[1] / "data" / "journal-patience-crowd.jsonl"
TOLD = Path(__file__).parents[1] / "data" / "journal-v1.json"


@pytest.fixture
def world() -> World:
    """A short history."""
    world = World(flat(2, 4), "priority")
    world.run(a_job("a", 4), a_job("b", 4))
    world.submit(a_job("c", 4, priority=5), after_ms=1_000)
    world.turn(JobCancelled("b"), after_ms=1_000)
    return world


def test_a_record_is_one_line_that_reads_as_it_was_written(world: World) -> None:
    for entry in world.journal.records:
        line = encode(entry)
        assert b"\n" not in line
        assert decode(line) == entry


def test_a_journal_read_from_its_lines_is_the_journal(world: World) -> None:
    read = Journal.read(world.journal.lines())
    assert read.records == world.journal.records
    assert everything(replay(read)) == everything(world.state)


def test_a_cancellation_without_a_reason_is_written_as_it_always_was() -> None:
    line = b'{"seq":3,"now":5,"body":{"type":"JobCancelled","job":"7"},"version":1}'
    assert encode(Record(3, 5, JobCancelled("7"))) == line
    assert decode(line).body == JobCancelled("7", "")


def test_a_job_keeps_the_unix_user_it_was_submitted_as_and_jobs_of_older_journals_have_none(world: World) -> None:
    job = replace(a_job("9", 1), execution=Execution(("true",), run_as=UnixIdentity(1001, 100, "ada")))
    kept = decode(encode(Record(3, 5, JobSubmitted(job)))).body
    assert isinstance(kept, JobSubmitted)
    assert kept.job.execution.run_as == UnixIdentity(1001, 100, "ada")
    old = [entry.body for entry in Journal.read(GOLDEN.read_bytes().splitlines()).records]
    submitted = [body.job for body in old if isinstance(body, JobSubmitted)]
    assert submitted
    assert all(job.execution.run_as is None for job in submitted)


def test_equal_histories_have_equal_digests_and_others_have_not(world: World) -> None:
    assert str(replay(world.journal).digest) == str(world.state.digest)
    shorter = replay(Journal(world.journal.records[:-1]))
    assert str(shorter.digest) != str(world.state.digest)
    assert str(Digest()) == str(Digest())


def test_a_torn_last_line_is_named_by_its_number(world: World) -> None:
    lines = list(world.journal.lines())
    lines[-1] = lines[-1][:-20]
    with pytest.raises(ValueError, match=f"journal line {len(lines)}: not a journal record"):
        Journal.read(lines)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"7",
        b"not json",
        b"\xff\xfe",
        b'{"seq":1,"now":0,"version":1}',
        b'{"seq":1,"now":0,"version":1,"body":{"type":"Dance"}}',
        b'{"seq":"one","now":0,"version":1,"body":{"type":"TimerDue"}}',
        b'{"seq":1,"now":0,"version":"1","body":{"type":"TimerDue"}}',
        b'{"seq":1,"now":0,"version":0,"body":{"type":"TimerDue"}}',
        b'{"seq":1,"now":0,"version":-1,"body":{"type":"TimerDue"}}',
        b'{"seq":1,"now":0.5,"version":1,"body":{"type":"TimerDue"}}',
    ],
)
def test_a_line_that_is_no_record_is_named_by_its_number(world: World, line: bytes) -> None:
    with pytest.raises(ValueError, match="journal line 2: "):
        Journal.read([encode(world.journal.records[0]), line])


def test_a_record_of_a_newer_form_is_refused_and_not_misread() -> None:
    line = encode(Record(0, 0, TimerDue())).replace(b'"version":1', b'"version":%d' % (VERSION + 1))
    with pytest.raises(ValueError, match=f"version {VERSION}"):
        decode(line)


def test_a_line_of_json_that_is_no_record_says_what_it_lacks() -> None:
    with pytest.raises(ValueError, match="not a journal record of version 1 or older: it has no 'version'"):
        decode(b'{"a":1}')


def test_a_missing_record_is_named_by_its_line(world: World) -> None:
    lines = list(world.journal.lines())
    del lines[2]
    with pytest.raises(ValueError, match="journal line 3: expected record 2, found 3"):
        Journal.read(lines)


def test_a_journal_whose_decision_was_changed_is_found_out(world: World) -> None:
    lines = [line.replace(b'"node":"n0"', b'"node":"n1"', 1) for line in world.journal.lines()]
    changed = next(i for i, (a, b) in enumerate(zip(lines, world.journal.lines(), strict=True)) if a != b)
    with pytest.raises(ValueError, match=f"record {changed}: decided again, the plan differs"):
        verify(Journal.read(lines))


def test_a_journal_whose_event_was_changed_is_found_out(world: World) -> None:
    lines = [line.replace(b'"gpus":4', b'"gpus":3') if b'"id":"a"' in line else line for line in world.journal.lines()]
    with pytest.raises(ValueError, match="record"):
        verify(Journal.read(lines))


def test_a_decision_is_made_for_the_moment_it_is_recorded_at() -> None:
    """Who loses least depends on the time: at 3 s the wide job, which has just started, at 63 s the narrow one."""
    world = World(flat(2, 2), "priority")
    world.run(a_job("narrow", 1), a_job("fixed", 1, preemptible=False))
    world.run(a_job("wide", 2), after_ms=3_000)
    record(world.state, world.journal, JobSubmitted(a_job("head", 1, priority=5)), world.now)
    assert stops(world.turn(after_ms=60_000)) == ["narrow"]
    verify(world.journal)


def test_an_unknown_field_of_a_later_release_does_no_harm() -> None:
    raw = json.loads(encode(Record(0, 0, JobCancelled("a"))))
    raw["body"]["why"] = "because"
    assert decode(json.dumps(raw).encode()) == Record(0, 0, JobCancelled("a"))


def test_a_journal_written_in_the_first_form_still_tells_its_story() -> None:
    """Fails if the form of records, what they mean, or the digest changes: then the form needs a new version."""
    told = json.loads(TOLD.read_text())
    journal = Journal.read(GOLDEN.read_bytes().splitlines())
    state = replay(journal)
    assert len(journal.records) == told["records"]
    assert str(state.digest) == told["digest"]
    assert {name: each.state.value for name, each in state.jobs.items()} == told["states"]
    assert {name: places(each.attempt.placement) for name, each in state.jobs.items() if each.attempt is not None} == {
        name: {node: tuple(devices) for node, devices in where.items()} for name, where in told["where"].items()
    }
    assert {name: str(state.reason(name)) for name in told["reasons"]} == told["reasons"]


def test_a_journal_written_in_the_first_form_is_decided_again_as_it_was() -> None:
    """Fails if a policy or the placement decides otherwise than it did: then the journal is written anew, knowingly."""
    verify(Journal.read(GOLDEN.read_bytes().splitlines()))


def test_a_journal_in_which_each_job_had_its_own_wake_ups_for_patience_is_decided_again_as_it_was() -> None:
    """Two queues, one of them at its limit: jobs that go first, are held, start and are cancelled."""
    state = verify(Journal.read(PATIENCE.read_bytes().splitlines()))
    assert [name for name, each in state.jobs.items() if each.overdue] == ["gang", "limited-0"]


def test_in_such_a_journal_a_job_goes_first_by_what_was_known_before_what_happens_at_that_moment() -> None:
    """How long it is expected to run is learned from jobs that ended before, not from one that ends then."""
    state = verify(Journal.read(CROWD.read_bytes().splitlines()))
    assert state.first_impatient == {"q0": "8", "q1": "7", "q2": "22"}


def test_a_share_that_was_written_before_shares_could_be_packed_reads_as_one_that_is_not() -> None:
    world = World(flat(1, 1), "gandiva")
    world.run(a_job("a"), a_job("b"))
    lines = list(world.journal.lines())
    assert b'"beside":""' in b"".join(lines)
    older = Journal.read([line.replace(b',"beside":""', b"") for line in lines])
    assert older.records == world.journal.records
    assert everything(replay(older))[:-3] == everything(world.state)[:-3]


def test_a_queue_that_was_written_before_there_were_two_least_run_times_and_three_weights_has_one() -> None:
    """A cluster as it was journaled, without `min_run_reclaim_ms` and weights: what was said held for everybody."""
    queue = (
        b'{"path":"b","guaranteed":[null,null,null],"deserved":[null,null,null],"limit":[null,null,null],"weight":1,'
    )
    queue += b'"priority":0,"reclaimable":true,"min_run_ms":60000,"budget_gpu_ms":null}'
    world = World(replace(flat(2, 4), queues=(Queue("a", deserved=Quota(4000)), Queue("b", min_run_ms=60_000))))
    new = encode(world.journal.records[0])
    before = new.replace(b',"min_run_reclaim_ms":null', b"").replace(b',"cpu_weight":null,"memory_weight":null', b"")
    for name in (b"normal_priority", b"member_priority_max", b"operator_priority_max", b"patience_ms"):
        before = before.replace(b',"%s":null' % name, b"")
    assert b"reclaim_ms" not in before
    assert b"cpu_weight" in new
    assert queue in before
    assert decode(before) == world.journal.records[0]
    state = replay(Journal([decode(before)]))
    assert state.quotas.least_run_ms("a", "b") == state.quotas.least_run_ms("b", "b") == 60_000
    assert [queue.weights for queue in state.cluster.queues] == [(1, 1, 1), (1, 1, 1)]


@pytest.mark.parametrize(
    "line",
    [
        b'{"seq":3,"now":5,"body":{"type":"TermBegun","term":2},"version":1}',
        b'{"seq":3,"now":5,"body":{"type":"TermBegun","term":2,"lacks":["mig"]},"version":1}',
    ],
)
def test_older_records_mean_that_nobody_is_suspended(line: bytes) -> None:
    body = decode(line).body
    assert isinstance(body, TermBegun)
    assert body.suspend is None
    assert encode(Record(3, 5, body)) == line


def test_actions_of_older_journals_are_written_as_they_always_were() -> None:
    actions: tuple[Action, ...] = (Suspend(ActionId(1, "7", 1, 1)), Resume(ActionId(1, "7", 1, 2)))
    written = encode(Record(3, 5, Plan(actions=actions)))
    assert b"host_mb" not in written
    assert b"placement" not in written
    assert decode(written).body == Plan(actions=actions)


def test_ends_of_older_journals_are_at_the_moment_they_were_recorded() -> None:
    line = b'{"seq":3,"now":5,"body":{"type":"AttemptEnded","job":"7","attempt":1,"outcome":"succeeded"},"version":1}'
    assert decode(line).body == AttemptEnded("7", 1, Outcome.SUCCEEDED, ended_ms=None)
    assert encode(Record(3, 5, AttemptEnded("7", 1, Outcome.SUCCEEDED))) == line
    records = Journal.read(GOLDEN.read_bytes().splitlines()).records
    ends = {each.body.job: each.now for each in records if isinstance(each.body, AttemptEnded)}
    state = replay(Journal(records))
    assert ends
    assert {job: state.record(job).stopped_ms for job in ends} == ends


def test_an_end_that_was_heard_of_late_is_replayed_as_it_was() -> None:
    world = World(flat(1, 8), "fifo")
    world.run(a_job("a", 8))
    world.turn(AttemptEnded("a", 1, Outcome.SUCCEEDED, ended_ms=400), after_ms=1_000)
    read = replay(Journal.read(world.journal.lines()))
    assert (read.record("a").ended_ms, read.now) == (400, 1_000)
    assert everything(read) == everything(world.state)
