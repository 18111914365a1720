"""Training: what a job does while it runs in virtual time, as it would report it. No policy sees more than the reports.

A job of a trace is only said to take so long. That is taken apart here into steps whose loss falls as 1/k until an
epoch lowers it by less than the job's own rule demands, which is when its duration is over. All of it is made up from
the job's id and model, always the same way; `docs/concepts/virtual-time.md` tells the numbers and their sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

from phalanx.simulate.trace import Ending
from phalanx.simulate.world.work import Work
from phalanx.workload.footprint import step_ms_of
from phalanx.workload.job import Job

STEP_MS = 1000
"""The time of a step at speed 1, with all the GPUs a job asked for, where it does not say another."""

EPOCHS = 50
"""Epochs until a job has converged."""

LOSS_FIRST = 2.0
"""What a loss starts at above its floor."""

FALLS = (8.0, 40.0)
"""How many times smaller the part of the loss above its floor is in the end, from the least to the most."""

FLOORS = (0.1, 0.6)
"""Where losses end, from the least to the most."""

NOISE = 0.01
"""By how much of its part above the floor a reported loss is off, at most."""


BATCH_FIRST, BATCH_MAX = 128, 4096
"""The batch that a job was measured with, and the largest that it may have if it adapts that."""

ADAPTIVE = ("batch", "adaptive")
"""The label of a job that tunes its batch to the GPUs it has."""

SENDING = 0.3
"""The part of a step that does not get shorter with more GPUs, at the batch and size that a job was measured with."""

NOISE_SCALES = (1.0, 4.0, 16.0)
"""The noise scale of gradients over the first batch, in each third of a training: it grows as the loss falls."""


def is_adaptive(job: Job) -> bool:
    """Whether a job tunes its batch by itself."""
    return ADAPTIVE in job.labels


def noise_scale(done: float) -> float:
    """The noise scale of a training of which this part is done."""
    thirds = len(NOISE_SCALES)
    return BATCH_FIRST * NOISE_SCALES[min(int(done * thirds + 1e-9), thirds - 1)]


def next_noise(done: float) -> float | None:
    """The part of a training after which its noise scale is another one; None if it stays."""
    thirds = len(NOISE_SCALES)
    passed = int(done * thirds + 1e-9) + 1
    return passed / thirds if passed < thirds else None


def step_parts(part: float, batch: float) -> float:
    """The time of a step, where 1 is that of the first batch on all GPUs asked for, with this part of those GPUs."""
    return (1 - SENDING) * (batch / BATCH_FIRST) / part + SENDING


@lru_cache(maxsize=1 << 12)
def best_batch(part: float, noise: float) -> int:
    """The batch with which most gets done, as the tuner of a job finds it."""
    batches = range(BATCH_FIRST, BATCH_MAX + 1, BATCH_FIRST)
    return max(batches, key=lambda batch: gets_done(part, batch, noise))


def gets_done(part: float, batch: float, noise: float) -> float:
    """Throughput times efficiency (Qiao et al., OSDI 2021), where 1 is the first batch on all GPUs asked for."""
    efficiency = (noise + BATCH_FIRST) / (noise + batch)
    return batch / BATCH_FIRST / step_parts(part, batch) * efficiency


@dataclass(frozen=True, slots=True)
class Training:
    """The truth of one training: its steps, and its loss at each."""

    job: str
    steps: float
    fall: float
    floor: float
    converges: bool = True

    def loss(self, step: float) -> float:
        """The loss at a step, without noise. One that does not converge stays where it starts."""
        return LOSS_FIRST / (1 + self.fall * step / self.steps if self.converges else 1.0) + self.floor

    @property
    def epoch_steps(self) -> float:
        """Steps of an epoch."""
        return self.steps / EPOCHS

    @property
    def epoch_drop(self) -> float:
        """The job's own rule: it has converged when an epoch lowers its loss by less."""
        return self.loss(self.steps) - self.loss(self.steps + self.epoch_steps) if self.converges else 1e-6

    def reported_loss(self, step: int) -> float:
        """The loss at a step as it is measured, with noise."""
        off = NOISE * (2 * _chance(f"{self.job} {step}") - 1)
        return self.floor + (self.loss(step) - self.floor) * (1 + off)


def step_time_ms(job: Job) -> float:
    """The time of a step of a job at speed 1."""
    return step_ms_of(job) or STEP_MS


def training_of(job: Job, work: Work) -> Training:
    """The training that a job is. One that does not complete in its trace does not converge either."""
    step_ms = step_time_ms(job)
    steps = max(work.duration_ms or 0, step_ms) / step_ms
    fall, floor = _between(FALLS, f"{job.id} fall"), _between(FLOORS, f"{job.id} floor")
    return Training(job.id, steps, fall, floor, converges=work.ending is Ending.COMPLETED)


def _between(ends: tuple[float, float], what: str) -> float:
    return ends[0] + (ends[1] - ends[0]) * _chance(what)


def _chance(what: str) -> float:
    """A number from 0 to 1 that looks like chance and is always the same."""
    return crc32(what.encode()) / 0xFFFFFFFF
