"""The ledger of samples: orders, shares, commits and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.errors import PhalanxError
from phalanx.train.data import Lanes, Ledger, LedgerSampler, LineFiles, Listed, Member, Shuffled


def epoch_of(order: Shuffled | Lanes, epoch: int) -> list[int]:
    return [order.sample(epoch, position) for position in range(order.length)]


def test_a_shuffled_order_stays_the_same_between_releases() -> None:
    """A training that goes on after an update must not see samples twice: the numbers of the first release."""
    assert epoch_of(Shuffled(10, seed=7), 0) == [4, 5, 8, 3, 6, 9, 2, 7, 0, 1]
    assert epoch_of(Lanes([3, 4, 2], lanes=2, seed=7), 0) == [3, 1, 4, 2, 5, 7, 6, 8, 0]


def test_epochs_and_seeds_are_shuffled_differently() -> None:
    orders = [epoch_of(Shuffled(100, seed), epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4


def test_a_shuffled_order_has_no_sample_that_prefers_a_place() -> None:
    """Each of 16 samples comes first about as often, in 1,600 epochs; the bounds are five standard deviations."""
    order = Shuffled(16)
    firsts = [order.sample(epoch, 0) for epoch in range(1600)]
    assert all(50 < firsts.count(sample) < 150 for sample in range(16))


def test_a_rank_reads_its_own_lanes_front_to_back() -> None:
    counts, lanes, world = [10, 10, 10, 10], 4, 2
    order = Lanes(counts, lanes)
    ledger = Ledger(order, global_batch=4)
    for rank in range(world):
        samples = [each for batch in LedgerSampler(ledger, member=Member(rank, world)) for each in batch]
        files = [sample // 10 for sample in samples]
        assert len(set(files)) == lanes // world
        for file in set(files):
            rows = [sample % 10 for sample in samples if sample // 10 == file]
            assert rows == list(range(10))


def test_the_last_batch_of_an_epoch_is_shared_out_with_padding_that_does_not_count() -> None:
    ledger = Ledger(Listed(9), global_batch=8)
    ledger.commit()
    samplers = [LedgerSampler(ledger, member=Member(rank, 4)) for rank in range(4)]
    assert [list(sampler) for sampler in samplers] == [[[8]], [[8]], [[8]], [[8]]]
    assert [sampler.scale for sampler in samplers] == [4.0, 0.0, 0.0, 0.0]


def test_a_step_of_micro_batches_ends_with_the_last_of_them() -> None:
    ledger = Ledger(Listed(16), global_batch=16)
    sampler = LedgerSampler(ledger, micro_batch=3, member=Member(1, 2))
    assert len(sampler) == 3
    assert list(sampler) == [[1, 3, 5], [7, 9, 11], [13, 15]]
    scales = []
    for _ in range(3):
        scales.append(sampler.scale)
        is_last = sampler.done()
    assert is_last
    assert sum(scales) == pytest.approx(1.0)


def test_a_ledger_goes_back_to_the_position_that_was_saved() -> None:
    ledger = Ledger(Shuffled(10), global_batch=4)
    for _ in range(4):
        ledger.commit()
    saved = json.loads(json.dumps(ledger.state_dict()))
    again = Ledger(Shuffled(10), global_batch=2)
    again.load_state_dict(saved)
    assert (again.epoch, again.committed, again.batch, again.steps_left) == (1, 4, range(4, 6), 3)


def test_a_dataset_of_another_length_is_refused_and_changes_nothing() -> None:
    ledger = Ledger(Shuffled(10), global_batch=4)
    ledger.commit()
    other = Ledger(Shuffled(11), global_batch=4)
    with pytest.raises(PhalanxError, match=r"has 11 samples, and had 10 when epoch 0 was saved after 4 of them"):
        other.load_state_dict(ledger.state_dict())
    assert (other.epoch, other.committed) == (0, 0)


def test_another_seed_or_other_files_are_refused() -> None:
    saved = Ledger(Lanes([4, 6], 2), global_batch=2).state_dict()
    for order in (Lanes([5, 5], 2), Lanes([4, 6], 2, seed=1), Lanes([4, 6], 5), Shuffled(10)):
        with pytest.raises(PhalanxError, match="the order of samples"):
            Ledger(order, global_batch=2).load_state_dict(saved)


def test_a_batch_that_no_allowed_world_divides_is_refused_with_one_that_would() -> None:
    with pytest.raises(PhalanxError, match=r"global batch of 7 can be divided by none .* 2, 3, 4: take 8 for example"):
        Ledger(Listed(100), global_batch=7, worlds=range(2, 5))
    assert Ledger(Listed(100), global_batch=12, worlds=range(2, 6)).worlds == [2, 3, 4]


def test_a_world_that_does_not_divide_the_batch_shares_it_out_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    samplers = [LedgerSampler(Ledger(Listed(16), global_batch=8), member=Member(rank, 5)) for rank in range(5)]
    assert list(samplers[0]) == [[0, 5], [8, 13]]
    assert [sampler.scale for sampler in samplers] == [2 * 5 / 8] * 3 + [5 / 8] * 2
    assert "not divided by 5 ranks: they have 2 or 1 samples of it" in caplog.text
    assert "1, 2, 4, 8 divide it" in caplog.text


def test_more_ranks_than_samples_in_a_batch_are_refused() -> None:
    with pytest.raises(PhalanxError, match="batch of 8 has no sample for some of 9 ranks: take at least 9"):
        LedgerSampler(Ledger(Listed(100), global_batch=8), member=Member(0, 9))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Shuffled(0), "holds 0 samples"),
        (lambda: Lanes([3, 0], 1), "file 1 of 2 holds no samples"),
        (lambda: Lanes([3, 2], 6), "6 lanes, expected 1 to 5"),
        (lambda: Ledger(Listed(3), global_batch=0), "global_batch is 0"),
        (lambda: Member(2, 2), "rank 2 is none of a world of 2"),
        (lambda: LineFiles([]), "no files"),
        (lambda: LedgerSampler(Ledger(Listed(3), global_batch=2), micro_batch=0), "micro_batch is 0"),
        (lambda: Ledger(Listed(3), 2).load_state_dict({"format": 2}), "saved in format 2, expected 1"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: object, said: str) -> None:
    with pytest.raises(PhalanxError, match=said):
        wrong()  # type: ignore[operator]


def test_lines_of_files_are_found_in_any_order(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    paths[0].write_text("".join(f"{each}\n" for each in range(300)))
    paths[1].write_text("300\r\n301")
    files = LineFiles(paths, int)
    assert files.counts == [300, 2]
    numbers = [*range(302), *range(301, -1, -7), 5, 200, 301]
    assert [files[number] for number in numbers] == numbers
    with pytest.raises(IndexError):
        files[302]


def test_a_file_that_was_cut_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("1\n2\n3\n")
    files = LineFiles([path], int)
    path.write_text("1\n")
    with pytest.raises(PhalanxError, match=r"a ends before line 3"):
        files[2]
