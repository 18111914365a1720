"""Samples as a stream, for programs that expect an IterableDataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch.utils.data import IterableDataset, default_collate, get_worker_info

from phalanx.errors import PhalanxError
from phalanx.train.data.sampler import LedgerSampler


class Samples(Protocol):
    """What has a sample for every number: `LineFiles`, or any torch Dataset of the map kind."""

    def __getitem__(self, number: int, /) -> Any: ...


class LedgerStream(IterableDataset[Any]):
    """The micro-batches of this rank, put together: `DataLoader(LedgerStream(files, sampler), batch_size=None)`.

    Each worker of the loader reads every so-manieth micro-batch; the loader puts them back in order. Workers know the
    position at which they were started, so they must be started anew for each epoch (`persistent_workers=False`).
    """

    def __init__(
        self, samples: Samples, sampler: LedgerSampler, collate: Callable[[list[Any]], Any] = default_collate
    ) -> None:
        self._samples, self._sampler, self._collate = samples, sampler, collate
        self._began_in = 0

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        number, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        if worker is not None and self._began_in == os.getpid():
            raise PhalanxError("a worker of the DataLoader does not know the ledger: set persistent_workers=False")
        self._began_in = os.getpid()
        for index, micro_batch in enumerate(self._sampler):
            if index % count == number:
                yield self._collate([self._samples[each] for each in micro_batch])

    def __len__(self) -> int:
        return len(self._sampler)
