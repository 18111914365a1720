"""What of an attempt's work is lost with it, and how that is told."""

from __future__ import annotations

from typing import Any

import pytest

from builders import World, a_job
from phalanx.cluster.cluster import flat
from phalanx.engine.state.losses import Loss, loss_of
from phalanx.engine.state.records import AttemptRecord
from phalanx.protocol.event import Progress
from phalanx.words.losses import lost_words
from phalanx.workload.job import Checkpointing

MINUTE_MS = 60_000


def running(checkpoint: Checkpointing, *reports: Progress) -> AttemptRecord:
    """An attempt on 8 GPUs ten minutes after its start, with what it reported then."""
    world = World(flat(1, 8))
    world.run(a_job("a", 8, checkpoint=checkpoint))
    world.turn(*reports, after_ms=10 * MINUTE_MS)
    attempt = world.state.jobs["a"].attempt
    assert attempt is not None
    return attempt


def test_without_a_report_all_since_the_start_is_lost() -> None:
    attempt = running(Checkpointing())
    assert loss_of(attempt, 20 * MINUTE_MS) == Loss(20 * MINUTE_MS, 160 * MINUTE_MS)


def test_what_is_durable_is_not_lost() -> None:
    attempt = running(Checkpointing(), Progress("a", 1, step=100, durable_step=90))
    assert loss_of(attempt, 12 * MINUTE_MS) == Loss(3 * MINUTE_MS, 24 * MINUTE_MS)


def test_stopping_and_coming_back_counts_as_it_does_for_victims() -> None:
    report = Progress("a", 1, step=100, durable_step=100, stop_cost_ms=5_000)
    attempt = running(Checkpointing(cost_ms=1_000, saves=True), report)
    lost = loss_of(attempt, 11 * MINUTE_MS)
    assert lost == Loss(66_000, 528_000)
    assert lost.gpu_ms == attempt.lost_gpu_ms(11 * MINUTE_MS)


def test_a_job_that_saves_at_an_interval_and_reports_nothing_loses_that_at_most() -> None:
    attempt = running(Checkpointing(interval_ms=5 * MINUTE_MS, saves=True))
    assert loss_of(attempt, 3 * MINUTE_MS) == Loss(3 * MINUTE_MS, 24 * MINUTE_MS)
    assert loss_of(attempt, 20 * MINUTE_MS) == Loss(5 * MINUTE_MS, 40 * MINUTE_MS)


def test_of_a_job_that_saves_but_does_not_say_when_it_is_not_known() -> None:
    assert loss_of(running(Checkpointing(saves=True)), 20 * MINUTE_MS) is None


def test_an_attempt_that_never_ran_has_nothing_to_lose() -> None:
    world = World(flat(1, 8))
    world.submit(a_job("a", 8, checkpoint=Checkpointing()))
    attempt = world.state.jobs["a"].attempt
    assert attempt is not None
    assert loss_of(attempt, 20 * MINUTE_MS) == Loss(0, 0)


def one_try(
    lost_ms: int | None, gpus: int = 8, reason: str = "preempted", started_ms: int | None = 0
) -> dict[str, Any]:
    slots = [{"rank": 0, "role": "worker", "node": "n0", "devices": list(range(gpus))}]
    lost_gpu_ms = None if lost_ms is None else lost_ms * gpus
    return {
        "reason": reason,
        "started_ms": started_ms,
        "slots": slots,
        "lost_ms": lost_ms,
        "lost_gpu_ms": lost_gpu_ms,
    }


@pytest.mark.parametrize(
    ("tries", "words"),
    [
        ([], ""),
        ([one_try(None, reason="")], ""),
        ([one_try(9_000, reason="hardware")], ""),
        ([one_try(0, started_ms=None)], ""),
        (
            [one_try(8 * MINUTE_MS), one_try(6 * MINUTE_MS)],
            "preempted 2 times, 14m 0s of work on 8 GPUs lost (1.9 GPU-hours)",
        ),
        ([one_try(MINUTE_MS, gpus=1)], "preempted once, 1m 0s of work on 1 GPU lost (1.0 GPU-minutes)"),
        (
            [one_try(MINUTE_MS), one_try(MINUTE_MS, gpus=4)],
            "preempted 2 times, 2m 0s of work lost (0.2 GPU-hours)",
        ),
        (
            [one_try(MINUTE_MS), one_try(None)],
            "preempted 2 times, at least 1m 0s of work on 8 GPUs lost (0.1 GPU-hours)",
        ),
        (
            [one_try(None)],
            "preempted once, how much work was lost is not known: it says that it saves and reports no durable step",
        ),
    ],
)
def test_what_was_lost_is_told_in_a_sentence(tries: list[dict[str, Any]], words: str) -> None:
    assert lost_words(tries) == words
