"""Sweeps: members are compared as they report, and who is outdone leaves its devices to the rest."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.engine.attempts import want_stopped
from phalanx.engine.records import AttemptRecord, Phase, StopReason
from phalanx.engine.state import State
from phalanx.workload.halving import Contest


def compete(state: State, attempt: AttemptRecord, step: int, metrics: Mapping[str, float]) -> None:
    """Compares a member of a sweep with those who have come as far; one that is outdone is stopped."""
    job = attempt.job
    halving = job.sweep.halving if job.sweep is not None else None
    if halving is None or halving.metric not in metrics or attempt.phase is not Phase.RUNNING:
        return
    contest = state.contests.setdefault(job.array_of, Contest(halving))
    if contest.report(job.id, step, metrics[halving.metric]) is not None:
        want_stopped(state, attempt, StopReason.OUTDONE)
