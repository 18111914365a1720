"""What replicas of a service would cost other jobs: worked out on request, by the search that would preempt."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from enum import StrEnum

from phalanx.engine.decide.replicas import request_for, room_of_lower
from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.preempt.preemption import PreemptionPlan
from phalanx.engine.state.records import JobRecord, Phase
from phalanx.engine.state.state import State
from phalanx.engine.transaction.suspension import loss_gpu_ms
from phalanx.engine.transaction.transaction import Transaction
from phalanx.engine.why.change import Other
from phalanx.engine.why.evidence import other


class Had(StrEnum):
    """How replicas would be had, or why not."""

    FREE = "free"
    PREEMPTION = "preemption"
    MAX = "max"
    QUOTA = "quota"
    NO_ROOM = "no_room"


@dataclass(frozen=True, slots=True)
class GivesWay:
    """A job that would be preempted: stopped with the loss of so much GPU time, or, with `gpus` of its own, shrunk."""

    other: Other
    lost_gpu_ms: int = 0
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaPrice:
    """What so many replicas would cost."""

    replicas: int
    had: Had
    gives_way: tuple[GivesWay, ...] = ()

    @property
    def lost_gpu_ms(self) -> int:
        """GPU time that all of them would lose."""
        return sum(each.lost_gpu_ms for each in self.gives_way)

    def seen_from(self, visible_queues: Container[str]) -> ReplicaPrice:
        """The same for a user that may know the jobs of some queues only."""
        shown = (replace(each, other=each.other.seen_from(visible_queues)) for each in self.gives_way)
        return replace(self, gives_way=tuple(shown))


def next_replica(state: State, job: str) -> ReplicaPrice | None:
    """What one more replica of a running service would cost; None for all other jobs."""
    record = state.record(job)
    attempt, scale = record.attempt, record.job.scale
    if scale is None or attempt is None or attempt.phase not in (Phase.RUNNING, Phase.RESIZING):
        return None
    if len(attempt.staying) >= scale.most:
        return ReplicaPrice(1, Had.MAX)
    return _price(state, record, 1)


def all_replicas(state: State, job: str) -> ReplicaPrice | None:
    """What all replicas that a pending service may have would cost together; None for all other jobs."""
    record = state.record(job)
    if record.job.scale is None or record.attempt is not None:
        return None
    return _price(state, record, record.job.scale.most)


def _price(state: State, record: JobRecord, count: int) -> ReplicaPrice:
    job = record.attempt.job if record.attempt is not None else record.job
    head = request_for(state, job, job.gang.roles[0], count)
    if state.shortfall(head) is not None:
        return ReplicaPrice(count, Had.QUOTA)
    with Transaction(state) as transaction:
        builder = PlanBuilder(transaction, state.now)
        mark = transaction.mark()
        blocks = builder.reservations.block(record.job.priority)
        fits = transaction.seat(head) is not None
        transaction.undo_to(mark)
        blocks.lift()
        room = None if fits else room_of_lower(builder, head)
        if fits or room is None:
            return ReplicaPrice(count, Had.FREE if fits else Had.NO_ROOM)
        return ReplicaPrice(count, Had.PREEMPTION, _giving_way(state, room))


def _giving_way(state: State, room: PreemptionPlan) -> tuple[GivesWay, ...]:
    stopped = tuple(
        GivesWay(other(state, victim.job.id), loss_gpu_ms(state, victim, state.now)) for victim in room.victims
    )
    shrunk = tuple(
        GivesWay(other(state, attempt.job.id), gpus=sum(len(slot.devices) for slot in slots))
        for attempt, slots in room.shrunk
    )
    return stopped + shrunk
