"""Samples by way of DataLoaders with workers, and positions by way of checkpoints, on several ranks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import free_port, run_ranks
from torch.utils.data import DataLoader, Dataset

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint import Checkpointer, Shared
from phalanx.train.data import Lanes, Ledger, LedgerSampler, LedgerStream, LineFiles, Member, Shuffled

LENGTH, BATCH = 50, 12


class Numbers(Dataset[int]):
    def __getitem__(self, number: int) -> int:
        return number

    def __len__(self) -> int:
        return LENGTH


def epoch_by(loader: DataLoader[Any], ledger: Ledger) -> list[int]:
    """The samples that one epoch of one rank hands out, each step committed before the next is taken."""
    seen: list[int] = []
    for samples in loader:
        seen += samples.tolist()
        ledger.commit()
    return seen


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_hands_out_each_sample_once_an_epoch_and_goes_on_where_the_ledger_stands(workers: int) -> None:
    ledger = Ledger(Shuffled(LENGTH, seed=3), BATCH)
    loader = DataLoader(
        Numbers(), batch_sampler=LedgerSampler(ledger), num_workers=workers, persistent_workers=workers > 0
    )
    first = epoch_by(loader, ledger)
    batches = iter(loader)
    second = next(batches).tolist()
    ledger.commit()
    del batches
    second += epoch_by(loader, ledger)
    assert sorted(first) == sorted(second) == list(range(LENGTH))
    assert first != second
    assert ledger.epoch == 2


def test_a_stream_over_files_hands_out_the_same_with_and_without_workers(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(4)]
    for number, path in enumerate(paths):
        path.write_text("".join(f"{number * 20 + row}\n" for row in range(20)))
    files = LineFiles(paths, int)
    seen = []
    for workers in (0, 2):
        ledger = Ledger(Lanes(files.counts, lanes=4), BATCH)
        stream = LedgerStream(files, LedgerSampler(ledger, member=Member(0, 1)))
        loader = DataLoader(stream, batch_size=None, num_workers=workers)
        seen.append([epoch_by(loader, ledger) for _ in range(2)])
    assert seen[0] == seen[1]
    assert sorted(seen[0][0]) == sorted(seen[0][1]) == list(range(80))


def test_workers_that_would_not_know_the_position_are_refused() -> None:
    ledger = Ledger(Shuffled(LENGTH), BATCH)
    stream = LedgerStream(Numbers(), LedgerSampler(ledger, member=Member(0, 1)))
    loader = DataLoader(stream, batch_size=None, num_workers=1, persistent_workers=True)
    epoch_by(loader, ledger)
    with pytest.raises(PhalanxError, match="persistent_workers=False"):
        next(iter(loader))


def attempt(rank: int, world: int, port: int, folder: str, steps: int) -> tuple[int, list[list[tuple[int, int]]]]:
    """Trains so many steps and ends without a word. The step it began at, and what this rank committed in each."""
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    model = torch.nn.Linear(1, 1)
    ledger = Ledger(Shuffled(LENGTH, seed=3), BATCH)
    sampler = LedgerSampler(ledger, micro_batch=5)
    loader = DataLoader(Numbers(), batch_sampler=sampler)
    checkpointer = Checkpointer({"model": model, "data": ledger}, [Shared(folder, every=2)], signals=())
    loaded = checkpointer.load()
    committed: list[list[tuple[int, int]]] = []
    while len(committed) < steps:
        epoch, step = ledger.epoch, []
        for samples in loader:
            step += [(epoch, sample) for sample in samples.tolist() if sampler.scale]
            if not sampler.done():
                continue
            ledger.commit()
            committed.append(step)
            step = []
            checkpointer.step()
            checkpointer.wait()
            if len(committed) == steps:
                break
    checkpointer.leave()
    dist.destroy_process_group()
    return (0 if loaded is None else loaded.step), committed


def test_positions_come_back_with_the_model_on_other_numbers_of_ranks(tmp_path: Path) -> None:
    history: list[list[tuple[int, int]]] = []
    began = []
    for world, steps in ((2, 3), (1, 9)):
        ranks = run_ranks(attempt, world, (world, free_port(), str(tmp_path / "run"), steps), 60)
        began.append(ranks[0][0])
        del history[ranks[0][0] :]
        history += [[pair for _, committed in ranks for pair in committed[step]] for step in range(steps)]
    assert began == [0, 2]
    counts = Counter(pair for step in history for pair in step)
    assert set(counts.values()) == {1}
    # 11 steps of 12 samples, five to an epoch of 50: two epochs and a step.
    assert Counter(epoch for epoch, _ in counts) == {0: LENGTH, 1: LENGTH, 2: BATCH}
