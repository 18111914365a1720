"""Lightning's Trainer under the launcher and the scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import Callback
from torch.utils.data import DataLoader

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint.tiers import Tier
from phalanx.train.data import Order
from phalanx.train.frameworks.steps import Steps


class PhalanxCallback(Callback):
    """Keeps a Trainer's state, has it see every sample once an epoch, and leaves when told to.

        callback = PhalanxCallback([Host(every=5), Shared("run", every=50)], global_batch=32)
        loader = callback.loader(dataset, micro_batch=8)
        trainer = Trainer(callbacks=[callback], use_distributed_sampler=False, enable_checkpointing=False)
        trainer.fit(module, loader)
        if callback.is_leaving:
            sys.exit()

    A step has `global_batch` samples on any number of ranks, `micro_batch` at once; `accumulate_grad_batches` follows.
    Training begins where the newest state is, without `ckpt_path`. `options` are those of `Checkpointer`.
    """

    def __init__(
        self,
        tiers: Sequence[Tier] | None = None,
        *,
        global_batch: int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        self._steps = Steps(tiers, global_batch, seed, options)
        self._seed = seed

    @property
    def is_leaving(self) -> bool:
        """Whether training ended because it was told to, before its last step."""
        return self._steps.is_leaving

    def loader(self, dataset: Any, micro_batch: int, *, order: Order | None = None, **options: Any) -> DataLoader[Any]:
        """The DataLoader to train with; `options` are those of `DataLoader`."""
        sampler = self._steps.sampler_of(dataset, micro_batch, order)
        # Of its own: an iteration draws from it, and a training that goes on iterates once more.
        generator = torch.Generator().manual_seed(self._seed)
        return LedgerLoader(dataset, batch_sampler=sampler, generator=generator, **options)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage == "fit":
            if not pl_module.automatic_optimization:
                raise PhalanxError("manual optimization is not supported: use phalanx.train.checkpoint.Checkpointer")
            trainer.accumulate_grad_batches = self._steps.sampler.accumulation

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Optimizers are there, and no data were read yet."""
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        progress = Loops(trainer.fit_loop)
        if self._steps.begin({"model": pl_module, "loops": progress}, trainer.optimizers, schedulers):
            sampler = self._steps.sampler
            progress.go_on(sampler.steps_done, sampler.steps_in_epoch, sampler.accumulation)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        loader = trainer.train_dataloader
        if not isinstance(loader, DataLoader) or loader.batch_sampler is not self._steps.sampler:
            raise PhalanxError(
                "training does not read the loader that this callback made: give `callback.loader(…)` to "
                "`fit`, and `use_distributed_sampler=False` to the Trainer"
            )

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: torch.Tensor) -> None:
        weight = self._steps.weight()
        if weight != 1.0:
            loss.mul_(weight)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._steps.micro_batch_done() and not self._steps.commit(_metrics(trainer)):
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._steps.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._steps.give_up()


class LedgerLoader(DataLoader[Any]):
    """A loader that begins where the ledger is, which Lightning asks for by these two names."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The ledger is a part of the state by itself."""


class Loops:
    """How far Lightning's loops are, as a part of the state."""

    def __init__(self, fit_loop: Any) -> None:
        self._fit_loop = fit_loop

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self._fit_loop.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._fit_loop.load_state_dict(state)

    def go_on(self, steps_done: int, steps_in_epoch: int, accumulation: int) -> None:
        """Counts the micro-batches of the epoch as this number of ranks has them; none done is all done of the last."""
        progress = self._fit_loop.epoch_loop.batch_progress
        progress.is_last_batch = steps_done == 0
        done = (steps_done or steps_in_epoch) * accumulation
        current = progress.current
        # As they are while the hook runs in which the state was saved.
        current.ready = current.started = current.processed = done
        current.completed = done - 1


def _metrics(trainer: Any) -> dict[str, float]:
    """What was logged, now and then: to read it waits for the device."""
    if trainer.global_step % trainer.log_every_n_steps:
        return {}
    return {name: float(value) for name, value in trainer.callback_metrics.items()}
