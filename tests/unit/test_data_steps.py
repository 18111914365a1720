"""Steps of equally many micro-batches, for trainers that count them."""

from __future__ import annotations

import pytest

from phalanx.train.data import Ledger, Listed, Member, StepSampler


@pytest.mark.parametrize("world", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("micro_batch", [1, 2, 5])
def test_every_step_has_as_many_micro_batches_and_their_weighted_mean_is_that_of_the_step(
    world: int, micro_batch: int
) -> None:
    """The value of a sample is its number, so that the mean of a step says which samples counted, and how much."""
    ledger = Ledger(Listed(29), 12)
    samplers = [StepSampler(ledger, micro_batch, member=Member(rank, world)) for rank in range(world)]
    rows = [list(zip(sampler, sampler.weights(), strict=True)) for sampler in samplers]
    accumulation = samplers[0].accumulation
    assert {len(row) for row in rows} == {len(samplers[0])} == {3 * accumulation}
    for number, samples in enumerate((range(12), range(12, 24), range(24, 29))):
        step = [part for row in rows for part in row[number * accumulation : (number + 1) * accumulation]]
        mean = sum(weight * sum(samples) / len(samples) for samples, weight in step) / (accumulation * world)
        assert mean == pytest.approx(sum(samples) / len(samples))
        assert sorted(each for part, weight in step if weight for each in part) == list(samples)


def test_steps_within_an_epoch_are_counted_from_its_beginning() -> None:
    ledger = Ledger(Listed(29), 12)
    ledger.commit()
    sampler = StepSampler(ledger, 4, member=Member(0, 1))
    assert (sampler.steps_in_epoch, sampler.steps_done, len(sampler)) == (3, 1, 9)
    assert len(list(sampler)) == 6
    assert sampler.weights_of_step() == [1.0, 1.0, 1.0]
