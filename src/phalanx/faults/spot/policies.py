"""Where to run next: on spot nodes, on demand, or nowhere.

`uniform` is Uniform Progress of Can't Be Late (Wu et al., NSDI 2024), along the line from nothing to all of the work at
the deadline. It waits for spot nodes as long as it is above that line, goes on demand when it is below, and back to
spot nodes once it is far enough above. A safety net keeps every deadline: whatever could be lost, there is time left to
do the rest on demand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from phalanx.faults.spot.task import Task
from phalanx.faults.spot.zone import STEP_H


class Place(StrEnum):
    """Where a job runs."""

    IDLE = "idle"
    SPOT = "spot"
    ON_DEMAND = "on demand"


@dataclass(frozen=True, slots=True)
class Moment:
    """What a policy knows: the time, the work that is saved and all that is done, where the job is, what there is."""

    at_h: float
    saved_h: float
    done_h: float
    place: Place
    has_spot: bool


Policy = Callable[[Task, Moment], Place]


def spot_only(task: Task, moment: Moment) -> Place:
    """Spot nodes whenever there are any."""
    return Place.SPOT if moment.has_spot else Place.IDLE


def on_demand_only(task: Task, moment: Moment) -> Place:
    """Never a spot node."""
    return Place.ON_DEMAND


def cheapest(task: Task, moment: Moment) -> Place:
    """Spot nodes or waiting for them until the last moment at which the deadline can be kept on demand."""
    if must_be_safe(task, moment):
        return Place.ON_DEMAND
    return Place.SPOT if moment.has_spot else Place.IDLE


def uniform(task: Task, moment: Moment) -> Place:
    """Uniform Progress with its safety net."""
    if must_be_safe(task, moment):
        return Place.ON_DEMAND
    line_h = moment.at_h * task.work_h / task.deadline_h
    if moment.place is Place.ON_DEMAND:
        ahead_h = (moment.at_h + 2 * task.changeover_h) * task.work_h / task.deadline_h
        return Place.SPOT if moment.has_spot and moment.done_h >= ahead_h else Place.ON_DEMAND
    if moment.has_spot:
        return Place.SPOT
    return Place.ON_DEMAND if moment.done_h < line_h else Place.IDLE


def must_be_safe(task: Task, moment: Moment) -> bool:
    """Whether one more step that comes to nothing, and the loss of what is not saved, would leave too little time.

    On demand nothing is lost any more, so that it stays there.
    """
    left_h = task.deadline_h - moment.at_h
    kept_h = moment.saved_h if task.loses else moment.done_h
    if moment.place is Place.ON_DEMAND:
        kept_h = moment.done_h
    # A change of place must be finished, and one that was begun for nothing: a step may be a little longer than it.
    return left_h - STEP_H < task.work_h - kept_h + task.changeover_h + STEP_H


POLICIES: dict[str, Policy] = {
    "spot only": spot_only,
    "on demand only": on_demand_only,
    "cheapest": cheapest,
    "uniform": uniform,
}
