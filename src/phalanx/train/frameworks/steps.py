"""What a callback or a loop keeps of a training: which samples come next, how far it is, and its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint import Checkpointer, RngState
from phalanx.train.checkpoint.tiers import Tier
from phalanx.train.data import Batch, Ledger, Order, Shuffled, StepSampler
from phalanx.train.frameworks.learning_rate import LearningRate


class Steps:
    """The steps of a training.

    `global_batch` is left out where the job file has a `batch`. `options` are those of `Checkpointer`.
    """

    def __init__(
        self, tiers: Sequence[Tier] | None, global_batch: int | None, seed: int, options: Mapping[str, Any]
    ) -> None:
        self._tiers, self._seed, self._options = tiers, seed, options
        self._batch = Batch.of_this_job(global_batch)
        self._sampler: StepSampler | None = None
        self._checkpointer: Checkpointer | None = None
        self._in_hand = 0
        self.is_leaving = False

    def sampler_of(self, dataset: Any, micro_batch: int, order: Order | None = None) -> StepSampler:
        """A batch sampler for a dataset of the map kind."""
        if order is None:
            if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
                raise PhalanxError(
                    f"a {type(dataset).__name__} has no samples by number, so that none could be counted once: give a "
                    "dataset with __len__ and __getitem__ (phalanx.train.data.LineFiles is one of files of lines)"
                )
            order = Shuffled(len(dataset), self._seed)
        self._sampler = StepSampler(Ledger(order, self._batch.global_batch), micro_batch)
        return self._sampler

    @property
    def sampler(self) -> StepSampler:
        if self._sampler is None:
            raise PhalanxError("the callback has no data yet: make the training's DataLoader with its `loader`")
        return self._sampler

    def begin(
        self, parts: Mapping[str, Any], optimizers: Sequence[torch.optim.Optimizer], schedulers: Sequence[Any]
    ) -> int:
        """Brings back the newest state; how many steps are in it."""
        named = {**parts, **_numbered("optimizer", optimizers), **_numbered("scheduler", schedulers)}
        return self.resume(named, LearningRate(optimizers, schedulers))

    def resume(self, parts: Mapping[str, Any], rates: LearningRate) -> int:
        """Brings back the newest state of all parts, with the learning rates for this number of ranks."""
        state = {**parts, "learning_rate": rates, "rng": RngState(), "data": self.sampler.ledger}
        self._checkpointer = Checkpointer(state, self._tiers, **self._options)
        self._checkpointer.load()
        rates.become(self._batch.lr_factor)
        return self._checkpointer.completed

    @property
    def completed(self) -> int:
        return 0 if self._checkpointer is None else self._checkpointer.completed

    @property
    def epochs(self) -> float:
        """How many epochs are done, with what is done of the present one."""
        return self.sampler.ledger.epoch + self.sampler.steps_done / self.sampler.steps_in_epoch

    def weight(self) -> float:
        """By what the mean loss of the micro-batch in hand is multiplied; 0 where it only fills up."""
        return self.sampler.weights_of_step()[self._in_hand]

    def micro_batch_done(self) -> bool:
        """A micro-batch is computed; whether it was the last of its step."""
        self._in_hand = (self._in_hand + 1) % self.sampler.accumulation
        return self._in_hand == 0

    def commit(self, metrics: Mapping[str, float]) -> bool:
        """A step is in the model; whether training should go on."""
        assert self._checkpointer is not None
        self._in_hand = 0
        self.sampler.ledger.commit()
        self.is_leaving = not self._checkpointer.step(metrics)
        return not self.is_leaving

    def end(self) -> None:
        """Training is over: its last step is saved, but where it was told to leave, and so has saved already."""
        checkpointer, self._checkpointer = self._checkpointer, None
        if checkpointer is None:
            return
        if self.is_leaving:
            checkpointer.leave()
            return
        # A tier that is busy with the step before would be left out.
        checkpointer.wait()
        checkpointer.save()
        checkpointer.close()

    def give_up(self) -> None:
        """An error ends the training: what was kept stays for the next start."""
        checkpointer, self._checkpointer = self._checkpointer, None
        if checkpointer is not None:
            checkpointer.leave()


def _numbered(name: str, parts: Sequence[Any]) -> dict[str, Any]:
    """One keeps the name; of several each has its number."""
    if len(parts) == 1:
        return {name: parts[0]}
    return {f"{name}.{number}": part for number, part in enumerate(parts)}
