"""Being told to save now, and telling the scheduler how far training is."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from progress_server import Scheduler
from torch.distributed import HashStore

from phalanx.bench.checkpoint.drill import fork_background
from phalanx.train.checkpoint import Checkpointer, Host, Shared, background
from phalanx.train.checkpoint import checkpointer as checkpointer_module
from phalanx.train.checkpoint.ending import grace
from phalanx.train.checkpoint.ending.notice import MaxRun, Notice, Notices
from phalanx.train.checkpoint.ending.progress import Progress, ProgressReporter
from phalanx.train.checkpoint.host.keeper import Keeper
from phalanx.train.checkpoint.saving import Saver
from phalanx.train.checkpoint.store import steps

NEVER = 1 << 30
PATIENCE_S = 240.0


def model() -> dict[str, Any]:
    return {"model": torch.nn.Linear(2, 2)}


@pytest.fixture(autouse=True)
def forked_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers import no torch: on a busy machine the time that is left after a notice would go by meanwhile."""
    monkeypatch.setattr(background, "start_process", fork_background)


def test_sigterm_ends_with_a_durable_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_GRACE_MS", "200000")
    before = signal.getsignal(signal.SIGTERM)
    tiers = [Host(every=NEVER), Shared(tmp_path, every=NEVER)]
    with Checkpointer(model(), tiers) as checkpointer:
        assert checkpointer.step()
        os.kill(os.getpid(), signal.SIGTERM)
        assert not checkpointer.step(), "training is to end"
        acknowledgement = checkpointer.acknowledgements[0]
        assert acknowledgement.is_durable, checkpointer.faults
        assert str(acknowledgement) == "SIGTERM: step 2 is durable (shared)"
        assert [each.step for each in steps(tmp_path)] == [2]
        with pytest.raises(SystemExit):
            checkpointer.step()
    assert signal.getsignal(signal.SIGTERM) is before
    Keeper.attach(str(tmp_path), 0).end()


def notice_of_a_signal(notices: Notices) -> Notice:
    notices.listen([signal.SIGTERM])
    os.kill(os.getpid(), signal.SIGTERM)
    notice = notices.due(1)
    notices.stop_listening()
    assert notice is not None
    assert notice.ends
    return notice


@pytest.fixture
def notice_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The notice file, not written yet."""
    monkeypatch.setenv("PHALANX_NOTICE_FILE", str(tmp_path / "notice.json"))
    return tmp_path / "notice.json"


def test_the_time_left_after_a_signal_is_that_of_the_notice_file(
    notice_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHALANX_DEADLINE", "5")
    monkeypatch.setenv("PHALANX_GRACE_MS", "1000")
    notice_file.write_text(json.dumps({"reason": "preempted", "until_ms": 7_000_000_000_500}))
    assert notice_of_a_signal(Notices(None)) == Notice("SIGTERM (preempted)", 7_000_000_000.5, ends=True)


def test_a_notice_file_that_comes_a_moment_after_the_signal_is_waited_for(
    notice_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def look_again(seconds: float) -> None:
        looks.append(seconds)
        notice_file.write_text(json.dumps({"reason": "drained", "until_ms": 9_000}))

    monkeypatch.setattr(grace.time, "sleep", look_again)
    assert notice_of_a_signal(Notices(None)) == Notice("SIGTERM (drained)", 9.0, ends=True)
    assert len(looks) == 1


@pytest.mark.parametrize(("grace_ms", "expected_s"), [("4000", 4.0), (None, 30.0), ("soon", 30.0)])
def test_without_a_notice_file_the_time_left_is_the_grace(
    monkeypatch: pytest.MonkeyPatch, grace_ms: str | None, expected_s: float
) -> None:
    monkeypatch.delenv("PHALANX_NOTICE_FILE", raising=False)
    monkeypatch.setenv("PHALANX_DEADLINE", str(time.time() + 300))
    if grace_ms is not None:
        monkeypatch.setenv("PHALANX_GRACE_MS", grace_ms)
    before_s = time.time()
    notice = notice_of_a_signal(Notices(None))
    assert before_s + expected_s <= notice.until_s <= time.time() + expected_s
    assert notice.reason == "SIGTERM"


def test_a_notice_file_that_cannot_be_read_leaves_the_grace(notice_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_GRACE_MS", "4000")
    notice_file.write_text("{")
    assert notice_of_a_signal(Notices(None)).until_s <= time.time() + 4


def test_a_training_whose_max_run_is_nearly_over_saves_in_time_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHALANX_DEADLINE", str(time.time() + 25))
    with Checkpointer(model(), [Host(every=NEVER), Shared(tmp_path, every=NEVER)], signals=()) as checkpointer:
        assert checkpointer.step(), "it ends no sooner than it must"
        assert checkpointer.durable_step == 1
        assert checkpointer.step()
        assert checkpointer.durable_step == 1, "it warns once"
        assert str(checkpointer.acknowledgements[0]) == "max_run is nearly over: step 1 is durable (shared)"


def test_a_deadline_far_away_is_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_DEADLINE", str(time.time() + 3600))
    assert MaxRun().due(save_s=1.0, step_s=1.0) is None
    assert MaxRun().due(save_s=1790.0, step_s=20.0) is not None, "a save takes as long as that"


def test_a_notice_to_end_is_not_lost_while_one_to_save_is_served() -> None:
    notices = Notices(HashStore())
    notices.give(Notice("asked", 10.0, ends=False))
    assert notices.due(1) is None, "ranks meet two steps later"
    notices.give(Notice("SIGTERM", 10.0, ends=True))
    notices.give(Notice("asked again", 10.0, ends=False))
    assert notices.due(3) == Notice("asked", 10.0, ends=False)
    notices.served()
    notices.due(4)
    assert notices.due(6) == Notice("SIGTERM", 10.0, ends=True)


def test_where_there_is_no_time_the_loss_is_bounded_in_words(tmp_path: Path) -> None:
    with Checkpointer(model(), [Host(every=NEVER), Shared(tmp_path, every=NEVER)], signals=()) as checkpointer:
        for _ in range(4):
            checkpointer.step()
        checkpointer.notify("spot", within_s=0.0)
        assert checkpointer.step(), "a notice to save does not end training"
        acknowledgement = checkpointer.acknowledgements[0]
        assert not acknowledgement.is_durable
        assert acknowledgement.steps_at_risk == 5
        assert "at most 5 steps are lost" in str(acknowledgement)


def test_a_warning_of_the_cloud_is_a_notice() -> None:
    left_s: list[float | None] = [None, 30.0]
    job = f"test-{uuid.uuid4()}"
    checkpointer = Checkpointer(model(), [Host(every=NEVER)], job=job, signals=(), warnings=[lambda: left_s.pop(0)])
    assert checkpointer.step()
    assert not checkpointer.step()
    assert checkpointer.acknowledgements[0].notice.ends
    checkpointer.close()


def test_ranks_agree_on_the_step_of_a_notice() -> None:
    store = HashStore()
    ranks = [Notices(store), Notices(store)]
    ranks[0].give(Notice("spot", 10.0, ends=True))
    heard = {rank: [step for step in range(5, 9) if notices.due(step)] for rank, notices in enumerate(ranks)}
    assert heard == {0: [7, 8], 1: [7, 8]}
    for notices in ranks:
        notices.served()
        assert notices.due(9) is None


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    started = Scheduler()
    monkeypatch.setenv("PHALANX_PROGRESS_URL", started.url)
    monkeypatch.setenv("PHALANX_PROGRESS_TOKEN", "secret")
    yield started
    started.close()


def eventually(holds: Any) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.01)


def test_progress_is_told_with_the_token_and_the_answer_is_passed_on(scheduler: Scheduler) -> None:
    asked: list[tuple[float, bool]] = []
    scheduler.answer["checkpoint_until_ms"] = 5000
    reporter = ProgressReporter(lambda until_s, ends: asked.append((until_s, ends)), interval_s=0.01)
    for step in (7, 8):
        reporter.tell(Progress(step, 4, 1500))
        eventually(lambda step=step: any(body["step"] == step for _, body in scheduler.heard))
    reporter.close()
    token, body = scheduler.heard[0]
    assert token == "Bearer secret"
    assert (body["durable_step"], body["stop_cost_ms"]) == (4, 1500)
    assert asked == [(5.0, False)], "the same request is passed on once"


def test_a_loss_that_has_diverged_is_told_as_null(scheduler: Scheduler) -> None:
    reporter = ProgressReporter(lambda until_s, ends: None, interval_s=0.01)
    reporter.tell(Progress(7, 4, 1500, metrics={"loss": float("nan"), "accuracy": 0.5}))
    eventually(lambda: scheduler.heard)
    reporter.close()
    assert scheduler.heard[0][1]["metrics"] == {"loss": None, "accuracy": 0.5}


def test_a_scheduler_that_asks_gets_a_save(scheduler: Scheduler) -> None:
    scheduler.answer["checkpoint_until_ms"] = int((time.time() + 60) * 1000)
    job = f"test-{uuid.uuid4()}"
    checkpointer = Checkpointer(model(), [Host(every=NEVER)], job=job, signals=())

    def is_served() -> bool:
        checkpointer.step()
        return bool(checkpointer.acknowledgements)

    eventually(is_served)
    assert checkpointer.acknowledgements[0].notice.reason == "the scheduler asked for it"
    checkpointer.close()


def test_a_request_is_heard_between_reports(scheduler: Scheduler) -> None:
    asked: list[tuple[float, bool]] = []
    reporter = ProgressReporter(lambda until_s, ends: asked.append((until_s, ends)), interval_s=600, listen_s=0.01)
    reporter.tell(Progress(7, 4, 1500))
    eventually(lambda: scheduler.heard and scheduler.questions > 3)
    scheduler.answer["checkpoint_until_ms"] = 5000
    reporter.tell(Progress(8, 4, 1500))
    eventually(lambda: asked)
    assert [body["step"] for _, body in scheduler.heard] == [7], "to ask is not to report"
    reporter.close()
    assert asked == [(5.0, False)]
    assert [body["step"] for _, body in scheduler.heard] == [7, 8]


def test_a_server_that_knows_no_such_question_is_not_asked_it_again(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler.status = 405
    reporter = ProgressReporter(lambda until_s, ends: None, interval_s=600, listen_s=0.01)
    eventually(lambda: scheduler.questions)
    reporter.tell(Progress(7, 4, 1500), at_once=True)
    eventually(lambda: scheduler.heard)
    reporter.close()
    assert scheduler.questions == 1
    assert not caplog.text


def test_work_that_is_not_saved_is_left_to_the_scheduler_to_count(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows when the durable step was done; to add the time here would count it twice."""
    monkeypatch.setattr(Saver, "step_s", property(lambda saver: 10.0))
    with Checkpointer(model(), [Host(every=NEVER)], job=f"test-{uuid.uuid4()}", signals=()) as checkpointer:
        for _ in range(3):
            checkpointer.step()
    told = scheduler.heard[-1][1]
    assert (told["step"], told["durable_step"], told["stop_cost_ms"]) == (3, 0, 0)


def test_a_save_that_was_asked_for_is_reported_at_once(
    scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointer_module, "ProgressReporter", partial(ProgressReporter, interval_s=600.0))
    scheduler.answer["checkpoint_until_ms"] = int((time.time() + 60) * 1000)
    tiers = [Host(every=NEVER), Shared(tmp_path, every=NEVER)]
    checkpointer = Checkpointer(model(), tiers, job=f"test-{uuid.uuid4()}", signals=())

    def is_served() -> bool:
        checkpointer.step()
        return bool(checkpointer.acknowledgements)

    eventually(is_served)
    step = checkpointer.completed
    eventually(lambda: [body for _, body in scheduler.heard if body["durable_step"] == step])
    checkpointer.close()


def test_training_goes_on_without_a_scheduler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PHALANX_PROGRESS_URL", "http://127.0.0.1:9/none")
    reporter = ProgressReporter(lambda until_s, ends: None, interval_s=0.01)
    reporter.tell(Progress(1, 0, 0))
    eventually(lambda: "training goes on" in caplog.text)
    reporter.close()
