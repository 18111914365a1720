"""The global batch and the learning rate at the present number of ranks, as the job file says."""

from __future__ import annotations

import os
from dataclasses import dataclass

from phalanx.errors import PhalanxError
from phalanx.train.data.share import Member
from phalanx.workload.batch import VARIABLE, BatchRule, OnResize, parse_rule


@dataclass(frozen=True, slots=True)
class Batch:
    """A step at the present world size.

        batch = Batch.of_this_job(global_batch=256)
        ledger = Ledger(Shuffled(len(dataset)), batch.global_batch)
        optimizer = AdamW(model.parameters(), lr=3e-4 * batch.lr_factor)
        sampler = LedgerSampler(ledger, micro_batch=8)

    `replicas` are the data-parallel ranks, and `share` is what each of them has of the global batch.
    """

    global_batch: int
    replicas: int
    lr_factor: float = 1.0

    @classmethod
    def of_this_job(cls, global_batch: int | None = None, member: Member | None = None) -> Batch:
        """By the key `batch` of the job file. Elsewhere `global_batch` counts, and stays the same at any size."""
        world_size = (member or Member.of_this_job()).world_size
        text = os.environ.get(VARIABLE)
        if text is None:
            if global_batch is None:
                raise PhalanxError(
                    f"{VARIABLE} is not set: give the job file a key 'batch', or name a global batch here"
                )
            return at(BatchRule(global_batch, world_size), world_size)
        try:
            rule = parse_rule(text)
        except ValueError as error:
            raise PhalanxError(f"{VARIABLE} is {text!r}, which is no rule of a job file: {error}") from None
        return at(rule, world_size)

    @property
    def share(self) -> int:
        """Samples of a step for each data-parallel rank; some have one less where the ranks do not divide the batch."""
        return -(-self.global_batch // self.replicas)

    def accumulation(self, micro_batch: int) -> int:
        """The micro-batches of at most so many samples that make up a rank's share."""
        return -(-self.share // micro_batch)


def at(rule: BatchRule, world_size: int) -> Batch:
    """The step of so many ranks."""
    if world_size % rule.ranks_each:
        raise PhalanxError(f"{world_size} ranks are not whole replicas of the model, which have {rule.ranks_each} each")
    replicas = world_size // rule.ranks_each
    if rule.on_resize is OnResize.CONSTANT and rule.size < replicas:
        raise PhalanxError(
            f"a global batch of {rule.size} has no sample for some of {replicas} ranks: take a larger one"
        )
    return Batch(rule.size_at(replicas), replicas, rule.lr_factor_at(replicas))
