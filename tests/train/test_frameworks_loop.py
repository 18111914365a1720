"""A loop of one's own: which samples its steps have, when they count, and how it ends."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.train.frameworks.loop import Loop

pytestmark = pytest.mark.needs("torch")

Make = Callable[..., "Loop"]


class Numbers:
    def __len__(self) -> int:
        return 10

    def __getitem__(self, number: int) -> int:
        return number


@pytest.fixture
def job() -> Iterator[str]:
    from phalanx.train.checkpoint.host.keeper import Keeper

    name = f"test-{uuid.uuid4()}"
    yield name
    Keeper.attach(name, 0).end()


@pytest.fixture
def make(job: str) -> Make:
    """Loops over ten numbers, four a step, two at once; each is a new start of the same training."""
    from phalanx.train.checkpoint import Host
    from phalanx.train.frameworks.loop import Loop

    def loop(state: dict[str, Any]) -> Loop:
        return Loop(Numbers(), [Host(every=1)], state, micro_batch=2, global_batch=4, job=job, signals=())

    return loop


def a_state() -> dict[str, Any]:
    import torch

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    return {"model": model, "optimizer": optimizer, "schedule": schedule}


def advance(state: dict[str, Any]) -> None:
    import torch

    state["model"](torch.ones(1, 1)).sum().backward()
    state["optimizer"].step()
    state["schedule"].step()
    state["optimizer"].zero_grad()


def test_every_sample_of_an_epoch_comes_once_and_counts_by_its_weight(make: Make) -> None:
    state = a_state()
    seen: list[list[int]] = []
    scales: list[float] = []
    loop = make(state)
    for step in loop.steps(3):
        for batch in step:
            seen.append(batch.tolist())
            scales.append(step.scale)
        advance(state)
    assert loop.completed == 3
    assert loop.epochs == 1
    counted = [number for numbers, scale in zip(seen, scales, strict=True) for number in numbers if scale]
    assert sorted(counted) == list(range(10))
    # The last two samples of the epoch are a whole step, of which the second half only fills up.
    assert scales == [0.5, 0.5, 0.5, 0.5, 1.0, 0.0]


def test_the_next_start_goes_on_behind_the_last_step_that_was_done(make: Make) -> None:
    state = a_state()
    seen: list[int] = []
    for step in make(state).steps(5):
        for batch in step:
            seen += batch.tolist() if step.scale else []
        if len(seen) > 8:
            break
        advance(state)
    weight, rate = float(state["model"].weight.detach()), state["optimizer"].param_groups[0]["lr"]
    del seen[8:]
    state = a_state()
    again = make(state)
    for step in again.steps(3):
        assert float(state["model"].weight.detach()) == weight
        assert state["optimizer"].param_groups[0]["lr"] == rate
        for batch in step:
            seen += batch.tolist() if step.scale else []
        advance(state)
    assert sorted(seen) == list(range(10))
    assert again.completed == 3


def test_a_step_of_which_samples_were_left_out_is_refused(make: Make) -> None:
    state = a_state()
    steps = make(state).steps(2)
    next(iter(next(steps)))
    advance(state)
    with pytest.raises(PhalanxError, match="the step ended after 1 of its 2 micro-batches"):
        next(steps)
    for step in make(a_state()).steps(1):
        assert len(list(step)) == 2


def test_a_loop_that_is_told_to_leave_ends_after_its_step(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from phalanx.train.checkpoint import Checkpointer

    going = Checkpointer.step
    told: list[dict[str, float]] = []

    def leaves(checkpointer: Checkpointer, metrics: dict[str, float]) -> bool:
        told.append(metrics)
        return going(checkpointer, metrics) and checkpointer.completed < 2

    monkeypatch.setattr(Checkpointer, "step", leaves)
    state = a_state()
    loop = make(state)
    for step in loop.steps(9):
        list(step)
        advance(state)
        step.tell(loss=1.5)
    assert loop.is_leaving
    assert told == [{"loss": 1.5}, {"loss": 1.5}]


def test_learning_rates_follow_the_rule_of_the_job_at_another_size(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from phalanx.train.data import Batch

    monkeypatch.setattr(Batch, "of_this_job", classmethod(lambda cls, given: Batch(4, 1, 0.5)))
    state = a_state()
    steps = make(state).steps(1)
    next(steps)
    assert state["optimizer"].param_groups[0]["lr"] == 0.05
    steps.close()  # type: ignore[attr-defined]
