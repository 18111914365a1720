"""Reports: what a job in virtual time says of itself, in the words that in-job runtimes use."""

from __future__ import annotations

from phalanx.placement.placement import Placement
from phalanx.protocol.event import Progress
from phalanx.simulate.world.speed import asked_gpus
from phalanx.simulate.world.training import (
    BATCH_FIRST,
    BATCH_MAX,
    best_batch,
    gets_done,
    is_adaptive,
    noise_scale,
    step_parts,
    step_time_ms,
    training_of,
)
from phalanx.simulate.world.work import Work
from phalanx.workload.footprint import footprint_of

DIGITS = 9


def report_of(work: Work, due: Progress, placement: Placement, done_ms: float, speed: float) -> Progress:
    """The report of a job that has done so much of its work and does more at this speed."""
    assert work.job is not None, f"{due.job} is not known"
    training = training_of(work.job, work)
    step = int(done_ms / step_time_ms(work.job))
    metrics = {
        **_batch(work, placement, done_ms, speed),
        "loss": training.reported_loss(step),
        "epoch_steps": training.epoch_steps,
        "epoch_drop": training.epoch_drop,
        "workers": float(sum(bool(slot.devices) for slot in placement.slots)),
        "servers": float(sum(not slot.devices for slot in placement.slots)),
        "nodes": float(len(dict.fromkeys(slot.node for slot in placement.slots if slot.devices))),
    }
    footprint = footprint_of(work.job)
    return Progress(
        due.job,
        due.attempt,
        step,
        memory_gb=footprint.high_gb if footprint is not None else 0.0,
        metrics={name: round(value, DIGITS) for name, value in metrics.items()},
    )


def _batch(work: Work, placement: Placement, done_ms: float, speed: float) -> dict[str, float]:
    """The time of a step, and its batch: a job that tunes that says by which noise."""
    assert work.job is not None
    if not is_adaptive(work.job):
        return {"step_ms": step_time_ms(work.job) / speed, "batch": BATCH_FIRST, "batch_first": BATCH_FIRST}
    part, done = placement.gpus / asked_gpus(work.job), done_ms / (work.duration_ms or 1)
    noise = noise_scale(done)
    batch = best_batch(part, noise)
    # Where a job lies makes its steps longer than its size alone does.
    distance = gets_done(part, batch, noise) / speed
    return {
        "step_ms": step_time_ms(work.job) * step_parts(part, batch) * distance,
        "batch": batch,
        "batch_first": BATCH_FIRST,
        "batch_max": BATCH_MAX,
        "noise_scale": noise,
    }
