"""What of an attempt's work is lost when it ends before its job is done."""

from __future__ import annotations

from typing import NamedTuple

from phalanx.engine.state.records import AttemptRecord, StopReason

FOR_GOOD = (StopReason.CANCELLED, StopReason.MAX_RUN, StopReason.OUTDONE)
"""Reasons after which a job is not started again, so that there is nothing to be done again."""


class Loss(NamedTuple):
    """Time that an attempt ran in vain, and the same in GPU time, at the sizes that it had."""

    ms: int
    gpu_ms: int


def loss_of(attempt: AttemptRecord, ended_ms: int) -> Loss | None:
    """What was lost with an attempt that ended at a moment, by the arithmetic that victims are chosen by: all since its
    last durable step, plus stopping and restarting.

    Of a job that says that it saves its work but not when, no more than its interval is lost; None where it names none.
    """
    since_ms = attempt.unsaved_ms(ended_ms)
    if attempt.started_ms < 0 and not since_ms:
        return Loss(0, 0)
    lost = Loss(since_ms + _restart_ms(attempt), attempt.lost_gpu_ms(ended_ms))
    saving = attempt.job.checkpoint
    if attempt.durable_step or not saving.saves:
        return lost
    if not saving.interval_ms:
        return None
    if since_ms <= saving.interval_ms:
        return lost
    ms = saving.interval_ms + _restart_ms(attempt)
    return Loss(ms, min(lost.gpu_ms, attempt.gpu_permille * ms // 1000))


def _restart_ms(attempt: AttemptRecord) -> int:
    return attempt.stop_cost_ms + attempt.job.checkpoint.cost_ms
