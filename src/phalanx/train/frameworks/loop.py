"""A loop of one's own with checkpoints, each sample once, and leaving when told to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint.tiers import Tier
from phalanx.train.data import Order
from phalanx.train.frameworks.learning_rate import LearningRate
from phalanx.train.frameworks.steps import Steps


class Loop:
    """The steps of a training, each with its micro-batches.

        state = {"model": model, "optimizer": optimizer}
        loop = Loop(dataset, [Host(every=5), Shared("run", every=50)], state, micro_batch=4, global_batch=32)
        for step in loop.steps(1000):
            for words, targets in step:
                (loss_of(model(words), targets) * step.scale).backward()
            optimizer.step()
            optimizer.zero_grad()
        if loop.is_leaving:
            sys.exit()

    `state` is what comes back: models, optimizers, schedules, scalers; random numbers and the position in the data are
    added. `completed` is how many steps are done. A step has `global_batch` samples on any number of ranks, which
    compute `micro_batch` of them at once; in a job whose file has a `batch` leave `global_batch` out. `loader` are
    options of the DataLoader, as `num_workers`; `options` those of `Checkpointer`.
    """

    def __init__(
        self,
        dataset: Any,
        tiers: Sequence[Tier] | None,
        state: Mapping[str, Any],
        *,
        micro_batch: int,
        global_batch: int | None = None,
        seed: int = 0,
        order: Order | None = None,
        loader: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._state = state
        self.completed = 0
        self._steps = Steps(tiers, global_batch, seed, options)
        self._loader = DataLoader(
            dataset,
            batch_sampler=self._steps.sampler_of(dataset, micro_batch, order),
            # Of its own: an iteration draws from it, and a training that goes on iterates once more.
            generator=torch.Generator().manual_seed(seed),
            **(loader or {}),
        )

    @property
    def is_leaving(self) -> bool:
        """Whether training ended because it was told to, before its last step."""
        return self._steps.is_leaving

    @property
    def epochs(self) -> float:
        """How many epochs are done, with what is done of the present one."""
        return self._steps.epochs

    def steps(self, until: int) -> Iterator[Step]:
        """The steps from the newest state on, until so many are done or training is told to leave.

        A step is done when the next is asked for: its samples are committed then, and what is due is saved. One that
        is left by `break` or by an error is not.
        """
        optimizers = [part for part in self._state.values() if isinstance(part, torch.optim.Optimizer)]
        schedulers = [part for part in self._state.values() if isinstance(part, LRScheduler)]
        self.completed = self._steps.resume(self._state, LearningRate(optimizers, schedulers))
        try:
            while self.completed < until and not self.is_leaving:
                # From the ledger's position to the end of the epoch.
                for step in self._epoch():
                    yield step
                    step.need_all()
                    self.completed += 1
                    if not self._steps.commit(step.metrics) or self.completed == until:
                        break
        except BaseException:
            self._steps.give_up()
            raise
        self._steps.end()

    def _epoch(self) -> Iterator[Step]:
        batches = iter(self._loader)
        while (first := next(batches, None)) is not None:
            yield Step(self._steps, chain([first], batches))


class Step:
    """One step: its micro-batches of this rank, and what is to be told of it."""

    def __init__(self, steps: Steps, batches: Iterator[Any]) -> None:
        self._steps, self._batches = steps, batches
        self._count = steps.sampler.accumulation
        self._taken = 0
        self.metrics: dict[str, float] = {}

    def __iter__(self) -> Iterator[Any]:
        while self._taken < self._count:
            self._taken += 1
            yield next(self._batches)
            self._steps.micro_batch_done()

    @property
    def scale(self) -> float:
        """The factor of the mean loss of the micro-batch in hand; gradients then add up to those of the whole step."""
        return self._steps.weight() / self._count

    def tell(self, **metrics: float) -> None:
        """Figures of this step for the scheduler and the page."""
        self.metrics |= metrics

    def need_all(self) -> None:
        """Refuses to count a step of which some samples were not computed."""
        if self._taken < self._count:
            raise PhalanxError(
                f"the step ended after {self._taken} of its {self._count} micro-batches: iterate over all of them, or "
                "leave the loop over steps"
            )
