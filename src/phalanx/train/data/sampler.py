"""What a DataLoader asks for the samples of this rank, from the ledger's position to the end of the epoch."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.errors import PhalanxError
from phalanx.train.data.ledger import Ledger
from phalanx.train.data.share import Member, MicroBatch, micro_batches


class LedgerSampler:
    """A batch sampler: `DataLoader(dataset, batch_sampler=LedgerSampler(ledger), num_workers=…)`.

    Workers may run ahead: only `ledger.commit()` counts samples. Each time the loader is iterated, it begins at the
    ledger's position. With `micro_batch`, at most so many samples of this rank come at once, and `done` says when a
    step has had all of them; so the global batch is the same for any number of ranks.

        for inputs, targets in loader:
            loss = loss_of(model(inputs), targets) * sampler.scale
            loss.backward()
            if sampler.done():
                optimizer.step()
                optimizer.zero_grad()
                ledger.commit()
    """

    def __init__(self, ledger: Ledger, *, micro_batch: int | None = None, member: Member | None = None) -> None:
        if micro_batch is not None and micro_batch < 1:
            raise PhalanxError(f"micro_batch is {micro_batch}, expected at least 1")
        self._ledger, self._size = ledger, micro_batch
        self.member = member or Member.of_this_job()
        ledger.check_world(self.member)
        self._in_hand = 0

    def __iter__(self) -> Iterator[list[int]]:
        self._in_hand = 0
        # Which epoch it is when the loader begins; the ledger is in the next one when the last batch is committed.
        epoch, order = self._ledger.epoch, self._ledger.order
        for batch in self._ledger.batches():
            for part in self._parts(batch):
                yield [order.sample(epoch, position) for position in part.positions]

    def __len__(self) -> int:
        """The micro-batches to the end of the epoch."""
        ledger = self._ledger
        before = ledger.steps_left - 1
        last = range(ledger.committed + before * ledger.global_batch, ledger.order.length)
        return before * len(self._parts(ledger.batch)) + len(self._parts(last))

    @property
    def scale(self) -> float:
        """The factor of the mean loss of the micro-batch in hand: 1 where all ranks have one of the same size."""
        return self._parts(self._ledger.batch)[self._in_hand].scale

    def done(self) -> bool:
        """The micro-batch in hand is computed. Whether it was the last of its step."""
        self._in_hand = (self._in_hand + 1) % len(self._parts(self._ledger.batch))
        return self._in_hand == 0

    def _parts(self, batch: range) -> list[MicroBatch]:
        return micro_batches(batch, self.member, self._size)
