"""Transactions: gangs that a plan would place, placed on the State and undone step by step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType

from phalanx.cluster.cluster import Health
from phalanx.engine.state.elastic import sized, within
from phalanx.engine.state.records import AttemptRecord, JobRecord
from phalanx.engine.state.state import State
from phalanx.engine.state.windows import closing
from phalanx.engine.transaction import cells as cells_seats
from phalanx.engine.transaction.undo_log import UndoLog
from phalanx.engine.transaction.vacancy import Vacancy
from phalanx.placement.gang import GangTrial, Seat
from phalanx.placement.preferred import preferred_first
from phalanx.policy.view import Usage
from phalanx.protocol.action import Repartition
from phalanx.workload.gang import Gang, Role
from phalanx.workload.job import Job


class Closed:
    """A block in which healthy nodes take no new work."""

    def __init__(self, state: State, nodes: list[int]) -> None:
        self.capacity = state.capacity
        self.nodes = nodes
        self._grown = state.capacity.grown

    def __enter__(self) -> None:
        for node in self.nodes:
            self.capacity.set_health(node, Health.DRAINING)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            self.capacity.set_health(node, Health.HEALTHY)
        self.capacity.grown = self._grown


class Opened:
    """A block in which nodes that are closed for maintenance now are as healthy as they will be after it."""

    def __init__(self, state: State) -> None:
        number = state.topology.number
        self.capacity = state.capacity
        self.nodes = [
            (number[name], state.capacity.health[number[name]], after) for name, after in state.closed.items()
        ]

    def __enter__(self) -> None:
        grown = self.capacity.grown
        for node, _, after in self.nodes:
            self.capacity.set_health(node, after)
        self.capacity.grown = grown

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node, now, _ in self.nodes:
            self.capacity.set_health(node, now)


class Cut:
    """A block in which devices that are being repartitioned have been: as it will be in a moment."""

    def __init__(self, state: State, cuts: Iterable[Repartition]) -> None:
        self.capacity = state.capacity
        self.devices = dict.fromkeys((state.topology.number[cut.node], cut.device) for cut in cuts)

    def __enter__(self) -> None:
        grown = self.capacity.grown
        for node, device in self.devices:
            self.capacity.set_cutting(node, device, cutting=False)
        self.capacity.grown = grown

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node, device in self.devices:
            self.capacity.set_cutting(node, device, cutting=True)


class Transaction(UndoLog):
    """The steps of a plan on transaction, and the gangs that it would place."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.vacancy = Vacancy()
        self.lends = True
        """Whether gangs that can do with less are placed also with what they would borrow."""

    def seat(self, record: JobRecord, at_ms: int | None = None) -> GangTrial | None:
        """Places a gang on what is free; its devices stay taken for the rest of the transaction.

        Not on nodes that it would not have left when they are closed, if it starts now or at the given moment.
        """
        if self.state.capacity.free_total < record.gpus_min:
            return None
        if not self.state.cluster.maintenance:
            return self.seat_at_last(record)
        with Closed(self.state, closing(self.state, record, self.state.now if at_ms is None else at_ms)):
            return self.seat_at_last(record)

    def seat_at_last(self, record: JobRecord) -> GangTrial | None:
        """Likewise, whatever is to be closed."""
        if self.state.cells is not None and record.asked.gang.gpus_min:
            return cells_seats.seat(self, record)
        job = record.asked
        if self.state.policy.sets_sizes and job.gang.elastic:
            job = replace(job, gang=sized(job.gang, record.sizes))
        if self.state.quotas and job.gang.elastic:
            job = replace(job, gang=within(job.gang, lambda need: self._allows(job.queue, need)))
        if self.state.policy.chooses_places:
            return self._seat_in_places(record, job)
        return self.seat_job(job)

    def _seat_in_places(self, record: JobRecord, job: Job) -> GangTrial | None:
        """Likewise, in the first of the policy's places that takes the gang."""
        number, bit = self.state.topology.number, self.state.topology.bit
        for place in self.state.policy.places(record, self.state):
            nodes = self.state.fit.of_types(place.gpu_types)
            for name in place.nodes:
                nodes |= bit[number[name]]
            if not nodes and not place.nodes and not place.gpu_types:
                nodes = -1
            seated = self.seat_job(job, nodes, place.crowded)
            if seated is not None:
                return seated
        return None

    def _allows(self, queue: str, need: Usage) -> bool:
        quotas = self.state.quotas
        return quotas.shortfall(queue, need) is None and (self.lends or not quotas.would_borrow(queue, need))

    def seat_job(self, job: Job, nodes: int = -1, crowded: bool | None = None, first_rank: int = 0) -> GangTrial | None:
        """Likewise, whatever its queue may have; on a set of nodes only, if it is given."""
        shunned = self.state.fit.shunned(job)
        seated = None
        if shunned and nodes & ~shunned:
            seated = self._seat_as_preferred(job, nodes & ~shunned, crowded, first_rank)
        if seated is None:
            seated = self._seat_as_preferred(job, nodes, crowded, first_rank)
        if seated is not None:
            self.note_held(seat.booking for seat in seated.seats)
        return seated

    def _seat_as_preferred(self, job: Job, nodes: int, crowded: bool | None, first_rank: int) -> GangTrial | None:
        """Likewise, on the nodes that the job likes best of those that hold as much of it as all of them do."""
        seated = self._seat_among(job, nodes, crowded, first_rank)
        if seated is None or not job.preferences:
            return seated
        count = len(seated.seats)
        seated.undo()
        for preferred in preferred_first(self.state.fit, job, nodes):
            narrow = self._seat_among(job, preferred, crowded, first_rank)
            if narrow is not None and len(narrow.seats) >= count:
                return narrow
            if narrow is not None:
                narrow.undo()
        return self._seat_among(job, nodes, crowded, first_rank)

    def _seat_among(self, job: Job, nodes: int, crowded: bool | None, first_rank: int) -> GangTrial | None:
        transaction = GangTrial(self.state.fit, self.state.packing, job)
        transaction.among, transaction.crowded, transaction.first_rank = nodes, crowded, first_rank
        return transaction if transaction.seat() else None

    def grow(self, attempt: AttemptRecord, role: Role, more: int) -> list[Seat]:
        """Places up to so many more members of a role beside those an attempt has."""
        if self.state.cells is not None and role.task.gpus:
            return cells_seats.grow(self, attempt, role, more)
        transaction = self._beside(attempt)
        transaction.first_rank = 1 + max(slot.rank for slot in attempt.placement.slots)
        with Closed(self.state, closing(self.state, self.state.jobs[attempt.job.id], self.state.now)):
            seats = transaction.grow(role, more, attempt.bookings[0])
        self.note_held(seat.booking for seat in seats)
        return seats

    def _beside(self, attempt: AttemptRecord) -> GangTrial:
        """A search for more members of a gang. One that the policy had start closer than it must be fills the nodes it
        is on before it outgrows them. A few tasks on two nodes are mostly slower than fewer on one.
        """
        state, job = self.state, attempt.job
        own = state.jobs[job.id].job.gang
        if job.gang.topology == own.topology or _sizes(job.gang) != _sizes(own):
            return GangTrial(state.fit, state.packing, job)
        transaction = GangTrial(state.fit, state.packing, replace(job, gang=replace(job.gang, topology=own.topology)))
        had: dict[int, int] = {}
        for booking in attempt.bookings:
            had[booking.node] = had.get(booking.node, 0) + booking.devices.bit_count()
        if any(gpus < state.topology.nodes[node].gpus for node, gpus in had.items()):
            transaction.among = sum(state.topology.bit[node] for node in had)
        return transaction


def _sizes(gang: Gang) -> list[tuple[str, int]]:
    """The roles of a gang and the GPUs of their tasks: where a policy has a task divided, its parts stay together."""
    return [(role.name, role.task.gpus) for role in gang.roles]
