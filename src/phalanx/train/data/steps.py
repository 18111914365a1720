"""A rank's share of every step in the same number of micro-batches, for loops that count them."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.errors import PhalanxError
from phalanx.train.data.ledger import Ledger
from phalanx.train.data.share import Member, MicroBatch, micro_batches


class StepSampler:
    """A batch sampler for trainers that step after every `accumulation` micro-batches, also at the end of an epoch.

    `accumulation` follows from the global batch, the world size and `micro_batch`, so the global batch is the same for
    any number of ranks. What the last step of an epoch lacks is filled with micro-batches of no weight. The length is
    that of a whole epoch; an iteration begins at the ledger's position.
    """

    def __init__(self, ledger: Ledger, micro_batch: int, *, member: Member | None = None) -> None:
        if micro_batch < 1:
            raise PhalanxError(f"micro_batch is {micro_batch}, expected at least 1")
        self.ledger, self._size = ledger, micro_batch
        self.member = member or Member.of_this_job()
        ledger.check_world(self.member)
        self.accumulation = -(-ledger.global_batch // (self.member.world_size * micro_batch))

    def __iter__(self) -> Iterator[list[int]]:
        # The ledger is in the next epoch when the last batch is committed.
        epoch, order = self.ledger.epoch, self.ledger.order
        for part in self._parts_left():
            yield [order.sample(epoch, position) for position in part.positions]

    def __len__(self) -> int:
        return self.steps_in_epoch * self.accumulation

    @property
    def steps_in_epoch(self) -> int:
        """The steps of a whole epoch."""
        return -(-self.ledger.order.length // self.ledger.global_batch)

    @property
    def steps_done(self) -> int:
        """The steps of the present epoch that are committed."""
        return self.steps_in_epoch - self.ledger.steps_left

    def weights(self) -> Iterator[float]:
        """The weight of every micro-batch that an iteration begun now hands out.

        The mean over micro-batches and ranks of weight times mean loss is the mean loss of the whole step.
        """
        return (part.scale * self.accumulation for part in self._parts_left())

    def weights_of_step(self) -> list[float]:
        """The same, of the step to be committed next."""
        return [part.scale * self.accumulation for part in self._parts(self.ledger.batch)]

    def _parts_left(self) -> Iterator[MicroBatch]:
        return (part for batch in self.ledger.batches() for part in self._parts(batch))

    def _parts(self, batch: range) -> list[MicroBatch]:
        parts = micro_batches(batch, self.member, self._size)
        return parts + [MicroBatch((batch[0],), 0.0)] * (self.accumulation - len(parts))
