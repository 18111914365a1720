"""The state: what was recorded as a State with its journal, for the verbs that look at one."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.beside.taken import Taken
from phalanx.engine.turn import propose
from phalanx.kube.gangs.bundle import slots_of
from phalanx.kube.shadow.history import History
from phalanx.kube.shadow.watched import Watched
from phalanx.protocol.event import AttemptEnded, ClusterDefined, Event, JobCancelled, JobSubmitted, Outcome, TimerDue
from phalanx.protocol.plan import Plan

END, CLUSTER, SUBMIT, START = range(4)
"""What comes first of what happened at one moment."""

Step = tuple[int, int, int, int, Event | Watched]
"""When, what comes first then, its number, whether it is an end, and what."""


class Devices:
    """Which GPUs pods have of a node. Kubernetes does not say: the first ones that are free."""

    def __init__(self) -> None:
        self._taken: dict[str, dict[int, str]] = {}

    def take(self, job: str, node: str, count: int) -> tuple[int, ...]:
        """Gives a job so many of a node."""
        taken = self._taken.setdefault(node, {})
        found: list[int] = []
        index = 0
        while len(found) < count:
            if index not in taken:
                found.append(index)
                taken[index] = job
            index += 1
        return tuple(found)

    def free(self, job: str) -> None:
        """Takes back what a job has."""
        for taken in self._taken.values():
            for index in [index for index, of in taken.items() if of == job]:
                del taken[index]


def taken_of(history: History, policy: str) -> Taken:
    """All that was recorded in one State. Gangs of which nothing tells how they ended are not in it."""
    taken, devices = Taken(), Devices()
    first = history.sections[0]
    known = [each for each in history.watched.values() if not each.is_lost]
    begin_ms = min([first.begin_ms, *(each.arrived_ms for each in known)])
    taken.tell(ClusterDefined(first.cluster, policy), begin_ms)
    for at_ms, order, _, _, step in sorted(_steps(history, known), key=lambda each: each[:4]):
        _tell(taken, devices, at_ms, order, step)
    taken.tell(TimerDue(), history.sections[-1].end_ms)
    _explain(taken)
    taken.reasons = {job: why for job, why in history.reasons.items() if job in taken.state.jobs}
    taken.left_out.update(history.left_out)
    return taken


def _explain(taken: Taken) -> None:
    """Writes down why phalanx would not start what it would not start now. Nothing is started."""
    plan = propose(taken.state, taken.journal, taken.state.now)
    if plan.verdicts:
        taken.tell(Plan(verdicts=plan.verdicts, head=plan.head, exhaustive=False), taken.state.now)


def _steps(history: History, known: list[Watched]) -> Iterator[Step]:
    for number, (at_ms, event) in enumerate(history.beside):
        yield at_ms, CLUSTER, number, 0, event
    for number, watched in enumerate(known):
        yield watched.arrived_ms, SUBMIT, number, 0, watched
        if watched.started_ms is not None:
            yield watched.started_ms, START, number, 0, watched
        if watched.ended_ms is not None:
            # One that ended at the moment when it started ends after that.
            order = END if watched.ended_ms != watched.started_ms else START
            yield watched.ended_ms, order, number, 1, watched


def _tell(taken: Taken, devices: Devices, at_ms: int, order: int, step: Event | Watched) -> None:
    if not isinstance(step, Watched):
        taken.tell(step, at_ms)
    elif order == SUBMIT:
        taken.tell(JobSubmitted(step.job), at_ms)
    elif step.id not in taken.state.jobs:
        return
    elif taken.state.jobs[step.id].attempt is None and order == START:
        slots = tuple(slots_of(step.bundle, step.nodes, lambda node, count: devices.take(step.id, node, count)))
        if not taken.start(step.id, slots, at_ms):
            devices.free(step.id)
            taken.tell(JobCancelled(step.id, "it ran where there was no place for it"), at_ms)
    else:
        devices.free(step.id)
        taken.tell(_ending(step, taken), at_ms)


def _ending(watched: Watched, taken: Taken) -> Event:
    if taken.state.jobs[watched.id].attempt is None:
        return JobCancelled(watched.id, "its pods are gone")
    if watched.has_failed:
        return AttemptEnded(watched.id, 1, Outcome.FAILED, exit_code=1, cause="exit")
    return AttemptEnded(watched.id, 1, Outcome.SUCCEEDED, cause="exit")
