"""The ledger: which samples of the present epoch are committed. All ranks have the same."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.train.data.order import Order
from phalanx.train.data.share import Member

FORMAT = 1

log = logging.getLogger("phalanx.data")


class Ledger:
    """Counts every sample of an epoch once, over failures and other world sizes.

        ledger = Ledger(Shuffled(len(dataset), seed=7), global_batch=32)
        sampler = LedgerSampler(ledger)
        loader = DataLoader(dataset, batch_sampler=sampler, num_workers=2)
        state = {"model": model, "optimizer": optimizer, "data": ledger}

    The samples of a step are the next `global_batch` of the order, whatever the world size; the last step of an epoch
    may have fewer. `commit` after the optimiser says that they are in the model. As a part of the checkpoint's state,
    the ledger goes back with the model to the step that is loaded, so that what was lost is read again, and no more.

    `worlds` are the world sizes that the job may come to have; there must be one that divides the global batch.
    """

    def __init__(self, order: Order, global_batch: int, *, worlds: Iterable[int] = ()) -> None:
        if global_batch < 1:
            raise PhalanxError(f"global_batch is {global_batch}, expected at least 1")
        self.order, self.global_batch = order, global_batch
        self.epoch = 0
        self.committed = 0
        allowed = sorted(set(worlds))
        self.worlds = [world for world in allowed if world > 0 and global_batch % world == 0]
        """Those of the allowed world sizes in which every rank has the same share of a batch."""
        if allowed and not self.worlds:
            nearest = nearest_multiple(global_batch, allowed[-1])
            raise PhalanxError(
                f"a global batch of {global_batch} can be divided by none of the allowed world sizes "
                f"{listed(allowed)}: take {nearest} for example"
            )

    @property
    def batch(self) -> range:
        """The positions of the step that is to be committed next."""
        return range(self.committed, min(self.committed + self.global_batch, self.order.length))

    @property
    def steps_left(self) -> int:
        """The steps to the end of the epoch."""
        return -(-(self.order.length - self.committed) // self.global_batch)

    def batches(self) -> Iterator[range]:
        """The positions of every step that is left of the epoch."""
        length, size = self.order.length, self.global_batch
        return (range(first, min(first + size, length)) for first in range(self.committed, length, size))

    def commit(self) -> None:
        """The samples of one step are in the model; after the last of them the next epoch begins."""
        self.committed = self.batch.stop
        if self.committed == self.order.length:
            self.epoch, self.committed = self.epoch + 1, 0

    def check_world(self, member: Member) -> None:
        """Refuses a world in which ranks would have no sample of a batch, and says where some have one less."""
        world_size = member.world_size
        if world_size > self.global_batch:
            raise PhalanxError(
                f"a global batch of {self.global_batch} has no sample for some of {world_size} ranks: take at least "
                f"{world_size}, or at most {self.global_batch} ranks"
            )
        if self.global_batch % world_size and member.rank == 0:
            more, less = -(-self.global_batch // world_size), self.global_batch // world_size
            log.warning(
                "a global batch of %d is not divided by %d ranks: they have %d or %d samples of it, and the factor of "
                "a rank's mean loss (`scale`, `weights`) is not 1; %s divide it",
                *(self.global_batch, world_size, more, less),
                listed([each for each in range(1, self.global_batch + 1) if self.global_batch % each == 0]),
            )

    def state_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "epoch": self.epoch,
            "committed": self.committed,
            "length": self.order.length,
            "order": self.order.fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to the position that was saved. Other data than it was saved for is refused."""
        if state["format"] != FORMAT:
            raise PhalanxError(f"the ledger was saved in format {state['format']}, expected {FORMAT}: update phalanx")
        remedy = (
            "give back the data that the epoch began with, or load without this part to begin a first epoch of these"
        )
        if state["length"] != self.order.length:
            raise PhalanxError(
                f"the dataset has {self.order.length} samples, and had {state['length']} when epoch {state['epoch']} "
                f"was saved after {state['committed']} of them: {remedy}"
            )
        if state["order"] != self.order.fingerprint:
            raise PhalanxError(
                f"the order of samples is {self.order.fingerprint!r}, and was {state['order']!r} when epoch "
                f"{state['epoch']} was saved: {remedy}"
            )
        self.epoch, self.committed = int(state["epoch"]), int(state["committed"])


def nearest_multiple(batch: int, world_size: int) -> int:
    """The multiple of a world size that is nearest to a batch, and not zero."""
    return max(1, round(batch / world_size)) * world_size


def listed(numbers: list[int]) -> str:
    """`1, 2, 4`; of many the first few."""
    shown = ", ".join(map(str, numbers[:8]))
    return f"{shown}, …" if len(numbers) > 8 else shown
