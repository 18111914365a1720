"""Replicas: what a service that follows its load lacks is placed as a pending job of its priority would be.

Other elastic jobs grow when no job is pending. A service has its load now: its replicas go before pending jobs of lower
priorities, and preempt running ones. They are no claims. While victims leave, every decision lays the same replicas
over the devices that they leave. So no job behind the service gets a claim on them.
"""

from __future__ import annotations

from collections.abc import Container
from copy import copy
from dataclasses import dataclass, replace

from phalanx.engine.decide.resize import grow_on_free
from phalanx.engine.fold.request import take_request
from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.preempt.preemption import PreemptionPlan, plan_preemption
from phalanx.engine.state.elastic import resizable_roles
from phalanx.engine.state.records import AttemptRecord, JobRecord, Phase
from phalanx.engine.state.state import State
from phalanx.workload.gang import Role
from phalanx.workload.job import Job


@dataclass(frozen=True, slots=True)
class NotBelow:
    """Keys of attempts that are untouchable for other reasons, or not of a lower priority."""

    state: State
    priority: int
    untouchable: Container[str]

    def __contains__(self, key: object) -> bool:
        if key in self.untouchable:
            return True
        return self.state.jobs[str(key).rpartition("/")[0]].job.priority >= self.priority


class Replicas:
    """The services of one decision that lack replicas, by priority; each grows once, when its turn has come."""

    def __init__(self, builder: PlanBuilder) -> None:
        self._draft = builder
        lacking = [attempt for attempt in builder.state.elastic.values() if lacks_replicas(builder, attempt)]
        self._waiting = sorted(lacking, key=lambda attempt: (attempt.job.priority, -attempt.created_ms))

    def before(self, record: JobRecord) -> None:
        """Has services grow that go before a pending job."""
        while self._waiting and self._waiting[-1].job.priority > record.job.priority:
            self._grow(self._waiting.pop())

    def after_all(self) -> None:
        """Has the other services grow with what pending jobs have left, where these may be passed."""
        state = self._draft.state
        heads = (state.jobs[waiting.head[1]].job.priority for waiting in state.classes.values())
        ahead = max(heads, default=None) if state.policy.lets_none_pass else None
        while self._waiting:
            attempt = self._waiting.pop()
            if ahead is None or attempt.job.priority > ahead:
                self._grow(attempt)

    def _grow(self, attempt: AttemptRecord) -> None:
        builder, role = self._draft, attempt.job.gang.roles[0]
        more = missing_replicas(attempt)
        if attempt.phase is Phase.RUNNING:
            more -= grow_on_free(builder, attempt, role, more)
        room = room_for(builder, attempt, role, more)
        # One that is being resized gets what victims leave already: whether it needs more of them is seen afterwards.
        if room is not None and (attempt.phase is Phase.RUNNING or not (room.victims or room.shrunk)):
            builder.preempt_for_replicas(attempt, room)


def lacks_replicas(builder: PlanBuilder, attempt: AttemptRecord) -> bool:
    """Whether an attempt is of a service that is to have more replicas than it has, and can be given some now."""
    return (
        attempt.job.scale is not None
        and builder.state.cells is None
        and attempt.key not in builder.untouchable
        and attempt.grow_after_ms <= builder.now
        and missing_replicas(attempt) > 0
    )


def missing_replicas(attempt: AttemptRecord) -> int:
    """How many replicas fewer a service has, or is getting, than it is to have."""
    if attempt.phase not in (Phase.RUNNING, Phase.RESIZING) or not resizable_roles(attempt.job):
        return 0
    return attempt.job.gang.roles[0].replicas_max - len(attempt.staying)


def room_for(builder: PlanBuilder, attempt: AttemptRecord, role: Role, more: int) -> PreemptionPlan | None:
    """Where as many more replicas as can be had would lie once other jobs have made way; None where none can be had.

    Only for replicas with whole devices that may lie anywhere: where they must be close, they grow on what is free.
    """
    if role.task.share is not None or attempt.job.gang.topology.required:
        return None
    while more:
        room = room_of_lower(builder, request_for(builder.state, attempt.job, role, more))
        if room is not None:
            return room
        more //= 2
    return None


def room_of_lower(builder: PlanBuilder, head: JobRecord) -> PreemptionPlan | None:
    """Where replicas would lie once jobs of lower priorities, and terminating attempts, have left."""
    state = builder.state
    if state.shortfall(head) is not None or not builder.could_make_room(head):
        return None
    context = builder.context(head, None)
    below = NotBelow(state, head.job.priority, context.untouchable)
    room = plan_preemption(builder.transaction, head, replace(context, untouchable=below))
    if room is None or room.moves or (builder.reservations.made and builder.reservations.delayed_by(head, room)):
        return None
    return room


def request_for(state: State, job: Job, role: Role, count: int) -> JobRecord:
    """So many replicas of a service as if they were a pending job."""
    head = copy(state.jobs[job.id])
    head.attempt, head.queued, head.parked, head.kept = None, None, None, None
    roles = (replace(role, replicas_min=count, replicas_max=count),)
    asked = replace(job, gang=replace(job.gang, roles=roles), scale=None)
    take_request(head, asked, state.tells_apart)
    return head
