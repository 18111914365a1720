"""Turns in virtual time: how long each job of a round has the device, and what it costs to hand it on.

As under Gandiva (Xiao et al., OSDI 2018), a job that hands on has what it holds in the device's memory copied to the
host, and back when its turn comes again. A turn that ends with a step is longer by what is left of that step, and then
there is least to copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from phalanx.cluster.device import Portion
from phalanx.placement.sharing import Interference
from phalanx.simulate.world.training import step_time_ms
from phalanx.workload.footprint import Footprint, footprint_of
from phalanx.workload.job import Job

TURN_MS = 60_000
"""How long a turn is: what backends have by default."""

SECOND_MS = 1000.0


@dataclass(frozen=True, slots=True)
class Stint:
    """What one job takes of a round: for itself, and for handing on."""

    runs_ms: float
    switch_ms: float


def stint_of(job: Job | None, portion: Portion, interference: Interference) -> Stint:
    """What a job with such a portion takes. One that does not say what memory it has loses what was measured."""
    footprint = footprint_of(job) if job is not None else None
    if job is None or footprint is None:
        lost = interference.switch_overhead
        return Stint(TURN_MS, TURN_MS * lost / (1.0 - lost))
    moved_gb = footprint.low_gb if portion.at_step else _mean_gb(footprint)
    switch_ms = interference.freeze_ms + 2 * moved_gb / interference.host_gb_per_s * SECOND_MS
    return Stint(_until_step_ends_ms(job) if portion.at_step else TURN_MS, switch_ms)


def speed_in_turns(own: Stint, others: Sequence[Stint]) -> float:
    """The part of a round that one of its jobs runs in."""
    return own.runs_ms / sum(each.runs_ms + each.switch_ms for each in (own, *others))


def _mean_gb(footprint: Footprint) -> float:
    """What a job has at any moment: it rises through the forward pass and falls through the backward pass."""
    return (footprint.low_gb + footprint.high_gb) / 2


def _until_step_ends_ms(job: Job) -> float:
    """A turn and what is left then of the step that runs: less than a step."""
    step_ms = step_time_ms(job)
    return ceil(TURN_MS / step_ms) * step_ms
