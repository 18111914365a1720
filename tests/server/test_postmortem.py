"""Post-mortems: where the time of a job went, why its attempts ended, and what would have helped."""

from __future__ import annotations

from typing import Any

from phalanx.server.api.overview.timeline import segments_of
from phalanx.server.postmortem.causes import endings, first_cause
from phalanx.server.postmortem.history import History, NodeTrouble, Saving
from phalanx.server.postmortem.remedies import intervals, remedies
from phalanx.server.postmortem.spent import spent

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def attempt(number: int, at: tuple[int, int, int | None], **about: Any) -> dict[str, Any]:
    created_ms, started_ms, ended_ms = at
    usual = {"exit_code": None, "reason": "", "outcome": None, "nodes": ["n3"], "lost_ms": None, "lost_gpu_ms": None}
    slots = [{"devices": list(range(8))}]
    times = {"created_ms": created_ms, "started_ms": started_ms, "ended_ms": ended_ms}
    return {"number": number, "slots": slots, **times, **usual, **about}


JOB = {
    "id": "7",
    "state": "running",
    "reason": None,
    "end_reason": "",
    "gpus": 8,
    "submitted_ms": 0,
    "started_ms": 10 * MINUTE_MS,
    "ended_ms": None,
}
FAILED = attempt(
    1,
    (10 * MINUTE_MS, 11 * MINUTE_MS, 131 * MINUTE_MS),
    outcome="lost",
    reason="lost",
    lost_ms=50 * MINUTE_MS,
    lost_gpu_ms=8 * 50 * MINUTE_MS,
)
AGAIN = attempt(2, (151 * MINUTE_MS, 153 * MINUTE_MS, None), nodes=["n4"])
NOW_MS = 213 * MINUTE_MS
TROUBLES = (
    NodeTrouble("n3", 131 * MINUTE_MS - 4_000, "failed", "xid 79"),
    NodeTrouble("n3", MINUTE_MS, "suspect", "an older one"),
    NodeTrouble("n9", 131 * MINUTE_MS, "failed", "another node"),
)


UNSAID = Saving()


def history(*attempts: dict[str, Any], saving: Saving = UNSAID, saves: int = 0, **about: Any) -> History:
    job = {**JOB, **about}
    return History(job, attempts, list(segments_of(job, attempts, [])), TROUBLES, {}, saving, saves, NOW_MS)


def test_every_second_goes_to_one_thing_and_they_add_up() -> None:
    # 10 min queued; 1 starting; 70 computing and 50 lost; 20 queued; 2 restarting; 60 computing.
    found = {each.kind: each for each in spent(history(FAILED, AGAIN))}
    minutes = {kind: each.ms // MINUTE_MS for kind, each in found.items()}
    assert minutes == {"queued": 30, "starting": 1, "restarting": 2, "computing": 130, "lost": 50}
    assert sum(each.ms for each in found.values()) == NOW_MS
    assert found["lost"].gpu_ms == 8 * 50 * MINUTE_MS
    assert found["queued"].gpu_ms == 0


def test_saves_take_their_time_from_computing() -> None:
    found = {each.kind: each for each in spent(history(FAILED, AGAIN, saving=Saving(MINUTE_MS), saves=13))}
    assert found["saving"].ms == 13 * MINUTE_MS
    assert found["computing"].ms == 117 * MINUTE_MS


def test_the_first_cause_is_the_trouble_of_its_own_node_nearest_to_the_end() -> None:
    found = endings(history(FAILED, AGAIN))
    assert [(each.kind, each.node) for each in found] == [("hardware", "n3")]
    said = first_cause(history(FAILED, AGAIN), found)
    assert said == "attempt 1 ended after 2h 0m: lost; node n3 became failed 4s before: xid 79"


def test_what_users_asked_for_is_no_cause() -> None:
    asked = {**FAILED, "reason": "requeued", "outcome": "stopped"}
    found = endings(history(asked, AGAIN))
    assert found[0].kind == "asked"
    assert first_cause(history(asked, AGAIN), found) == "nothing went wrong"


def test_another_interval_a_spare_and_another_queue_are_told_of_with_what_they_save() -> None:
    past = history(FAILED, AGAIN, saving=Saving(30_000), saves=2)
    tried = intervals(past)
    # 120 and 60 min ran: every 30 min nothing of 120 min is lost, and 4 + 2 saves take half a minute each.
    half_hour = next(each for each in tried if each.interval_ms == 30 * MINUTE_MS)
    assert (half_hour.lost_ms, half_hour.saving_ms) == (0, 3 * MINUTE_MS)
    rooms = {"vision": [(0, 4.0, 12.0), (1, 0.0, 12.0), (2, 12.0, 12.0)], "product": [(0, 8.0, 8.0)]}
    told = {each.kind: each for each in remedies(past, endings(past), tried, rooms)}
    # 50 min lost and a minute spent on saving, against one save an hour: the attempts ran two hours and one.
    assert told["checkpoint"].saves_ms == 50 * MINUTE_MS + 60_000 - next(
        each.saving_ms + each.lost_ms for each in tried if each.interval_ms == 2 * HOUR_MS
    )
    assert told["spare"].saves_ms == 20 * MINUTE_MS
    assert told["queue"].text.startswith("the queue vision: during 67% of the 20m 0s")


def test_a_job_that_lost_nothing_and_waited_for_nothing_needs_no_remedy() -> None:
    alone = attempt(1, (0, 0, HOUR_MS), outcome="succeeded")
    done = history(alone, state="succeeded", ended_ms=HOUR_MS, started_ms=0)
    assert intervals(done) == []
    assert remedies(done, endings(done), [], {}) == []
    assert first_cause(done, []) == "nothing went wrong"
