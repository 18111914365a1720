"""Runs a task by a policy through zones: what it costs, when it is done, and what work was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from phalanx.faults.spot.policies import Moment, Place, Policy
from phalanx.faults.spot.task import Task
from phalanx.faults.spot.zone import STEP_H, SpotError, Zone

PATIENCE = 10.0
"""A policy that keeps no deadline is given up after so many times that of the task."""


@dataclass(slots=True)
class Outcome:
    """What it came to. `finish_h` is None if it was given up."""

    usd: float = 0.0
    finish_h: float | None = None
    lost_h: float = 0.0
    spot_h: float = 0.0
    on_demand_h: float = 0.0
    reclaims: int = 0
    changes: int = 0

    def met(self, task: Task) -> bool:
        """Whether it was done in time."""
        return self.finish_h is not None and self.finish_h <= task.deadline_h + 1e-9


@dataclass(slots=True)
class _Job:
    """Where the job is: in which zone, how much is done and saved, and how long the change goes on yet."""

    place: Place = Place.IDLE
    zone: Zone | None = None
    done_h: float = 0.0
    saved_h: float = 0.0
    changing_h: float = 0.0


def run(task: Task, policy: Policy, zones: Sequence[Zone]) -> Outcome:
    """Steps through it. The policy decides at the beginning of each step, when it is known whether there is spot."""
    if not zones:
        raise SpotError("no zones: expected at least one")
    job, outcome = _Job(), Outcome()
    for step in range(round(task.deadline_h * PATIENCE / STEP_H)):
        if job.place is Place.SPOT and job.zone is not None and not job.zone.has_spot(step):
            _reclaim(task, job, outcome)
        spot = min((zone for zone in zones if zone.has_spot(step)), key=lambda zone: zone.spot_usd_h, default=None)
        stays = job.place is Place.SPOT
        at_h = step * STEP_H
        wanted = policy(task, Moment(at_h, job.saved_h, job.done_h, job.place, spot is not None or stays))
        if wanted is not job.place:
            _change(task, job, outcome, wanted, spot, zones)
        if _work(task, job, outcome, at_h):
            return outcome
    return outcome


def _reclaim(task: Task, job: _Job, outcome: Outcome) -> None:
    outcome.reclaims += 1
    if task.loses:
        outcome.lost_h += job.done_h - job.saved_h
        job.done_h = job.saved_h
    job.saved_h, job.place, job.zone, job.changing_h = job.done_h, Place.IDLE, None, 0.0


def _change(task: Task, job: _Job, outcome: Outcome, place: Place, spot: Zone | None, zones: Sequence[Zone]) -> None:
    """A change that is wanted saves the work first; that it takes a start is in its time."""
    outcome.changes += 1
    job.saved_h, job.place, job.changing_h = job.done_h, place, 0.0
    job.zone = spot if place is Place.SPOT else min(zones, key=lambda zone: zone.on_demand_usd_h)
    if place is not Place.IDLE:
        job.changing_h = task.changeover_h


def _work(task: Task, job: _Job, outcome: Outcome, at_h: float) -> bool:
    """One step of paying and working; whether the work is done."""
    if job.place is Place.IDLE or job.zone is None:
        return False
    started_h = min(job.changing_h, STEP_H)
    job.changing_h -= started_h
    speed = task.speed if job.place is Place.SPOT else 1.0
    needs_h = (task.work_h - job.done_h) / speed
    used_h = min(STEP_H, started_h + needs_h)
    job.done_h = min(job.done_h + (used_h - started_h) * speed, task.work_h)
    _pay(job, outcome, used_h)
    _save(task, job)
    if job.done_h >= task.work_h - 1e-9:
        outcome.finish_h = at_h + used_h
        return True
    return False


def _pay(job: _Job, outcome: Outcome, used_h: float) -> None:
    assert job.zone is not None, "it runs in a zone"
    if job.place is Place.SPOT:
        outcome.spot_h += used_h
        outcome.usd += used_h * job.zone.spot_usd_h
    else:
        outcome.on_demand_h += used_h
        outcome.usd += used_h * job.zone.on_demand_usd_h


def _save(task: Task, job: _Job) -> None:
    """On demand all that is done stays; on spot nodes, what was saved after each interval since the last change."""
    if job.place is Place.ON_DEMAND:
        job.saved_h = job.done_h
    else:
        job.saved_h += floor((job.done_h - job.saved_h) / task.interval_h + 1e-9) * task.interval_h
