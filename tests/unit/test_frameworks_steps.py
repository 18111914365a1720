"""What the callbacks for trainers of other libraries have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.errors import PhalanxError
from phalanx.train.data import Member

pytestmark = pytest.mark.needs("torch")


EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"


@pytest.mark.parametrize(("name", "count"), [("huggingface", 7), ("lightning", 9), ("fsdp2", 9)])
def test_the_guide_says_how_many_lines_of_an_example_are_marked(name: str, count: int) -> None:
    lines = (EXAMPLES / f"train_{name}.py").read_text().splitlines()
    assert sum(line.endswith("  # phalanx") for line in lines) == count


class Numbers:
    def __len__(self) -> int:
        return 10

    def __getitem__(self, number: int) -> int:
        return number


class Endless:
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


def test_what_only_fills_up_a_step_has_no_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    from phalanx.train.frameworks.steps import Steps

    monkeypatch.setattr(Member, "of_this_job", classmethod(lambda cls: Member(1, 2)))
    steps = Steps(None, 4, seed=1, options={})
    ledger = steps.sampler_of(Numbers(), micro_batch=1).ledger
    weights = []
    while ledger.epoch == 0:
        for _ in range(steps.sampler.accumulation):
            weights.append(steps.weight())
            ends_step = steps.micro_batch_done()
        assert ends_step
        ledger.commit()
    # Two samples are left for the last of three steps: one on each rank, and nothing in its second micro-batch.
    assert weights == [1.0, 1.0, 1.0, 1.0, 2.0, 0.0]


def test_data_without_numbers_are_refused() -> None:
    from phalanx.train.frameworks.steps import Steps

    with pytest.raises(PhalanxError, match=r"a Endless has no samples by number.*LineFiles"):
        Steps(None, 4, seed=1, options={}).sampler_of(Endless(), micro_batch=1)


def test_a_learning_rate_follows_the_size_and_comes_back_with_it() -> None:
    import torch

    from phalanx.train.frameworks.learning_rate import LearningRate

    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    rates = LearningRate([optimizer], [scheduler])
    rates.become(0.5)
    assert optimizer.param_groups[0]["lr"] == 0.2
    again = LearningRate([optimizer], [scheduler])
    again.load_state_dict(rates.state_dict())
    again.become(1.0)
    optimizer.step()
    scheduler.step()
    assert scheduler.base_lrs == [0.4]
    assert optimizer.param_groups[0]["lr"] == 0.2
