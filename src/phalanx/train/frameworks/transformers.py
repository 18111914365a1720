"""Hugging Face's Trainer under the launcher and the scheduler."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import TrainerCallback

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint.tiers import Tier
from phalanx.train.data import Order
from phalanx.train.frameworks.steps import Steps

IGNORED_LABEL = -100


class PhalanxCallback(TrainerCallback):
    """Keeps a Trainer's state, has it see every sample once an epoch, and leaves when told to.

        trainer = Trainer(model, args, train_dataset=dataset)
        callback = PhalanxCallback(trainer, [Host(every=5), Shared("run", every=50)], global_batch=32)
        trainer.train()
        if callback.is_leaving:
            sys.exit()

    It adds itself to the trainer, whose training data then come in the ledger's order: `global_batch` samples a step on
    any number of ranks, `per_device_train_batch_size` at once; `gradient_accumulation_steps` follows. Training begins
    where the newest state is; `save_strategy="no"` and no `resume_from_checkpoint` go with it. `options` are those of
    `Checkpointer`.
    """

    def __init__(
        self,
        trainer: Any,
        tiers: Sequence[Tier] | None = None,
        *,
        global_batch: int | None = None,
        order: Order | None = None,
        **options: Any,
    ) -> None:
        self._trainer = trainer
        self._steps = Steps(tiers, global_batch, trainer.args.seed, options)
        self._order = order
        self._metrics: dict[str, float] = {}
        self._make_dataloader, trainer.get_train_dataloader = trainer.get_train_dataloader, self._dataloader
        self._take_batches, trainer.get_batch_samples = trainer.get_batch_samples, self._batches
        self._compute_loss, trainer.compute_loss = trainer.compute_loss, self._loss
        trainer.add_callback(self)

    @property
    def is_leaving(self) -> bool:
        """Whether training ended because it was told to, before its last step."""
        return self._steps.is_leaving

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer, steps = self._trainer, self._steps
        if trainer.is_deepspeed_enabled or (trainer.is_fsdp_enabled and _fsdp_version(trainer) == 1):
            raise PhalanxError("DeepSpeed and FSDP1 under the Trainer are not supported: use DDP or FSDP2")
        optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        parts = {"model": trainer.model}
        scaler = getattr(trainer.accelerator, "scaler", None)
        if scaler is not None:
            parts["scaler"] = scaler
        completed = steps.begin(parts, [optimizer], [trainer.lr_scheduler])
        state.global_step, state.epoch = completed, steps.epochs
        # So that means of the log and the speed at the end are those of this start.
        trainer._globalstep_last_logged = trainer._initial_global_step = completed
        if args.max_steps <= 0:
            # At another batch size there are other steps to the end.
            left = args.num_train_epochs - steps.epochs
            state.max_steps = completed + math.ceil(round(left * steps.sampler.steps_in_epoch, 6))
        control.should_training_stop = completed >= state.max_steps

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._steps.micro_batch_done()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self._steps.commit(self._metrics):
            control.should_training_stop = True
        state.epoch = self._steps.epochs

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        said = (logs or {}).items()
        self._metrics |= {name: float(value) for name, value in said if isinstance(value, int | float)}

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._steps.end()

    def _dataloader(self) -> DataLoader[Any]:
        """What the Trainer would read, in the ledger's order."""
        args, former = self._trainer.args, self._make_dataloader()
        sampler = self._steps.sampler_of(former.dataset, args.per_device_train_batch_size, self._order)
        args.gradient_accumulation_steps = sampler.accumulation
        return DataLoader(
            former.dataset,
            batch_sampler=sampler,
            collate_fn=former.collate_fn,
            num_workers=former.num_workers,
            pin_memory=former.pin_memory,
            prefetch_factor=former.prefetch_factor,
            worker_init_fn=former.worker_init_fn,
            multiprocessing_context=former.multiprocessing_context,
            # Of its own: an iteration draws from it, and a training that goes on iterates once more.
            generator=torch.Generator().manual_seed(args.seed),
        )

    def _batches(self, iterator: Iterator[Any], count: int, device: Any) -> Any:
        if self._trainer.state.global_step >= self._trainer.state.max_steps:
            iterator = iter(())
        return self._take_batches(self._without_labels_that_fill_up(iterator), count, device)

    def _without_labels_that_fill_up(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """What only fills up must not be among the items by which the sum of losses is divided."""
        counts_items = self._trainer.model_accepts_loss_kwargs or self._trainer.compute_loss_func is not None
        for weight in self._steps.sampler.weights_of_step():
            inputs = next(iterator, None)
            if inputs is None:
                return
            if counts_items and weight == 0 and "labels" in inputs:
                inputs["labels"] = torch.full_like(inputs["labels"], IGNORED_LABEL)
            yield inputs

    def _loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        found = self._compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
        if not model.training:
            return found
        weight = self._steps.weight()
        if kwargs.get("num_items_in_batch") is not None:
            # A sum divided by the items of the whole step has its weight already.
            weight = float(weight > 0)
        if return_outputs:
            return _weighted(found[0], weight, model), found[1]
        return _weighted(found, weight, model)


def _weighted(loss: torch.Tensor, weight: float, model: torch.nn.Module) -> torch.Tensor:
    if weight == 1.0:
        return loss
    if weight == 0.0 and not bool(torch.isfinite(loss)):
        # A mean over no item; its gradients would be no numbers either.
        return torch.stack([(each * 0).sum() for each in model.parameters() if each.requires_grad]).sum()
    return loss * weight


def _fsdp_version(trainer: Any) -> int:
    return int(getattr(trainer.accelerator.state.fsdp_plugin, "fsdp_version", 1))
