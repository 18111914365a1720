"""Sweeps: members are compared as they report, and one that is outdone leaves its devices to the rest."""

from __future__ import annotations

from phalanx.engine.fold.ending import want_stopped
from phalanx.engine.state.records import AttemptRecord, Phase, StopReason
from phalanx.engine.state.state import State
from phalanx.protocol.event import Progress
from phalanx.workload.halving import WORST, Contest


def compete(state: State, attempt: AttemptRecord, progress: Progress) -> None:
    """Compares a member of a sweep with those that have come as far; one that is outdone or diverged is stopped."""
    job = attempt.job
    halving = job.sweep.halving if job.sweep is not None else None
    if halving is None or attempt.phase is not Phase.RUNNING:
        return
    value = WORST if halving.metric in progress.diverged else progress.metrics.get(halving.metric)
    if value is None:
        return
    contest = state.contests.setdefault(job.array_of, Contest(halving))
    if contest.report(job.id, progress.step, value) is not None:
        want_stopped(state, attempt, StopReason.OUTDONE)
