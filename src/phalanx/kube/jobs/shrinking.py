"""Shrinking: a gang of which pods have ended gives back what these had, and goes on as a job of the rest.

The engine starts and ends gangs whole. A gang of which one pod stays would hold the devices of all others for as long,
which no ResourceQuota counts: places are held for a while, for pods that come in place of those that failed.
"""

from __future__ import annotations

from dataclasses import replace

from phalanx.kube.engine import Engine
from phalanx.kube.gangs.bundle import Bundle, GpuTypes, RefusedError, places_of, running_job_of
from phalanx.kube.jobs.roster import Roster
from phalanx.kube.jobs.tracked import Step, Tracked
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import Action, Start
from phalanx.protocol.event import (
    AttemptEnded,
    DevicesAssigned,
    Done,
    Failed,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobSubmitted,
    Outcome,
)

VACANT_MS = 600_000
"""How long the places of pods that failed or were deleted are held for others of their group."""

DONE_MS = 60_000
"""How long those of pods that have done their work are, so that pods that end together are looked at together."""

SHORTER = "it goes on with fewer pods"
NO_PLACE = "what is left of it runs where there is no place for it"


class Shrinking:
    """Takes note of gangs that are not whole any more, and cuts them down to what is left."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._since: dict[str, int] = {}

    def note(self, tracked: Tracked, now: int) -> None:
        """A gang that is bound is not whole."""
        self._since.setdefault(tracked.job, now)

    def due(self, now: int) -> list[Tracked]:
        """The gangs that have been so for long enough."""
        found = []
        for job, since in list(self._since.items()):
            tracked = self._roster.tracked.get(job)
            if tracked is None or tracked.step is not Step.BOUND or not self._is_short(tracked):
                del self._since[job]
            elif now - since >= (VACANT_MS if tracked.vacant or tracked.stand_ins else DONE_MS):
                del self._since[job]
                found.append(tracked)
        return found

    def _is_short(self, tracked: Tracked) -> bool:
        return 0 < len(self._roster.present(tracked)) < len(tracked.uids)

    def shrink(self, tracked: Tracked, engine: Engine, gpu_types: GpuTypes, now: int) -> list[Action]:
        """Ends a job and has the rest of its pods run on as another; gives back what else was decided."""
        attempt = engine.state.attempt(tracked.job, tracked.attempt)
        left = _rest(tracked, self._roster, engine)
        try:
            job = running_job_of(left, gpu_types)
        except RefusedError:
            return []
        if attempt is None:
            return []
        had = list(attempt.placement.slots)
        waiting = self._roster.waiting(engine.state)
        ended = AttemptEnded(tracked.job, tracked.attempt, Outcome.SUCCEEDED, reason=SHORTER, cause="exit")
        engine.take((*map(JobHeld, waiting), ended, JobSubmitted(job)), now)
        self._roster.remove(tracked)
        actions: list[Action] = []
        for action in engine.decide(now)[0].actions:
            if action.id.job == left.id and isinstance(action, Start):
                self._go_on(tracked, left, action, had, engine, now)
            else:
                actions.append(action)
        if left.id not in self._roster.tracked:
            engine.take((JobCancelled(left.id, NO_PLACE),), now)
        engine.take(map(JobReleased, waiting), now)
        return actions

    def _go_on(self, old: Tracked, left: Bundle, start: Start, had: list[Slot], engine: Engine, now: int) -> None:
        slots = _same_slots(left, start.placement, old.nodes, had)
        number = start.id.attempt
        engine.take((DevicesAssigned(left.id, number, slots),), now)
        if f"{left.id}/{number}" in engine.state.to_stop:
            engine.take((Failed(start.id, NO_PLACE),), now)
            return
        engine.take((Done(start.id),), now)
        nodes = {pod.metadata.key: old.nodes[pod.metadata.key] for pod in left.pods}
        self._roster.add(
            Tracked(left, old.family, step=Step.BOUND, attempt=number, nodes=nodes, least=old.least, says=old.says)
        )


def _rest(tracked: Tracked, roster: Roster, engine: Engine) -> Bundle:
    """What is left of a gang: where it lies, it is allowed to be."""
    pods = tuple(roster.present(tracked).values())
    base = tracked.job.partition("~")[0]
    number = next(i for i in range(1, len(engine.state.jobs) + 2) if f"{base}~{i}" not in engine.state.jobs)
    bundle = tracked.bundle
    return replace(bundle, id=f"{base}~{number}", pods=pods, parts=(), near=(), topology="", preferences=())


def _same_slots(left: Bundle, planned: Placement, nodes: dict[str, str], had: list[Slot]) -> tuple[Slot, ...]:
    """The slots of a plan on the devices that the pods had."""
    slots = []
    for (pod, _), slot in zip(places_of(left, planned), planned.slots, strict=True):
        node = nodes[pod.metadata.key]
        own = next(each for each in had if each.node == node and len(each.devices) == len(slot.devices))
        had.remove(own)
        slots.append(replace(slot, node=node, devices=own.devices))
    return tuple(slots)
