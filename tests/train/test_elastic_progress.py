"""Ranks that keep their memory, and the scheduler: it hears how far they are, and has them save and end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import run_alone
from progress_server import Scheduler

from phalanx.train.elastic import Elastic, transfer


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    started = Scheduler()
    yield started
    started.close()


def train(folder: str, url: str) -> tuple[int, bool]:
    """Steps until the scheduler ends it; how many, and whether this rank was told to leave."""
    os.environ.update(PHALANX_PROGRESS_URL=url, PHALANX_PROGRESS_TOKEN="secret")
    elastic = Elastic({"model": torch.nn.Linear(2, 2)}, folder=folder, tell=lambda _: None)
    for step in elastic.steps(sys.maxsize):
        with step:
            step.commit()
            time.sleep(0.005)
    return elastic.completed, elastic.is_leaving


def test_steps_are_reported_and_saved_when_the_scheduler_asks(scheduler: Scheduler, tmp_path: Path) -> None:
    scheduler.answer["checkpoint_until_ms"] = int((time.time() + 600) * 1000)

    def end_it_once_saved(body: dict[str, Any]) -> None:
        if body["durable_step"]:
            scheduler.answer["stop_at_ms"] = int((time.time() + 600) * 1000)

    scheduler.on_report = end_it_once_saved
    completed, is_leaving = run_alone(train, str(tmp_path), scheduler.url)
    assert is_leaving
    reports = [body for _, body in scheduler.heard]
    asked = next(body for body in reports if body["durable_step"])
    assert asked["durable_step"] == asked["step"] < completed, "it went on after the save that was asked for"
    assert (reports[-1]["step"], reports[-1]["durable_step"]) == (completed, completed)
    assert [path.name for path in transfer.saved(tmp_path / "after-failure")] == [f"step-{completed:012d}.state"]


def test_without_a_folder_nothing_is_durable(scheduler: Scheduler) -> None:
    scheduler.on_report = lambda body: scheduler.answer.update(stop_at_ms=1)
    completed, is_leaving = run_alone(train_without_folder, scheduler.url)
    assert is_leaving
    assert {body["durable_step"] for _, body in scheduler.heard} == {0}
    assert scheduler.heard[-1][1]["step"] == completed


def train_without_folder(url: str) -> tuple[int, bool]:
    os.environ.update(PHALANX_PROGRESS_URL=url, PHALANX_PROGRESS_TOKEN="secret")
    elastic = Elastic({"model": torch.nn.Linear(2, 2)}, tell=lambda _: None)
    for step in elastic.steps(sys.maxsize):
        with step:
            step.commit()
            time.sleep(0.005)
    return elastic.completed, elastic.is_leaving
