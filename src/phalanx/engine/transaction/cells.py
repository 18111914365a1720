"""Places in cells: what the cells choose for a gang, and for members that it gets or gives back.

The cells choose the leaves and the victims. What they do not know of is looked at here: CPUs, memory, labels, taints,
closeness, and nodes that are to be closed. A choice that does not stand is taken back and made again without the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from phalanx.cluster.bits import from_members, members
from phalanx.cluster.capacity import MB_PER_GB, Booking
from phalanx.cluster.cells import CellError
from phalanx.cluster.cluster import CLUSTER, NODE
from phalanx.cluster.device import DeviceLoad, Portion
from phalanx.cluster.device import fit as fit_portion
from phalanx.cluster.mig import GEOMETRIES
from phalanx.engine.state.cells import Tenancy, told
from phalanx.engine.state.records import AttemptRecord, JobRecord
from phalanx.engine.state.state import State
from phalanx.engine.state.windows import closing
from phalanx.engine.transaction.undo_log import UndoLog
from phalanx.placement.cells.ask import all_tasks_of, leaf_request_of, seats_of, shares_leaves, suggested_to
from phalanx.placement.cells.group import Group
from phalanx.placement.cells.group import Seat as CellSeat
from phalanx.placement.cells.outcome import Obstacle, Outcome
from phalanx.placement.cells.request import Request, Suggestion
from phalanx.placement.fit import Ask
from phalanx.placement.gang import GangTrial, Seat
from phalanx.protocol.cells_steps import Grown, Joined, Seated, Shrunk
from phalanx.protocol.reason import Reason
from phalanx.workload.gang import Gang, Role
from phalanx.workload.job import Job

TRIES_MAX = 16
"""Choices of the cells that are looked at for one gang and region: a bound on work, counted and never timed."""

REGIONS_MAX = 256
"""Domains in which a gang that must lie in one is tried."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the cells chose for a gang. It is done among the cells, and not yet in the capacity."""

    seated: GangTrial
    victims: tuple[AttemptRecord, ...] = ()

    @property
    def bookings(self) -> tuple[Booking, ...]:
        return tuple(seat.booking for seat in self.seated.seats)


def seat(transaction: UndoLog, record: JobRecord) -> GangTrial | None:
    """Places a gang in its cells beside all that are there; its devices stay taken for the rest of the transaction."""
    mark = transaction.mark()
    found = search(transaction, record)
    if isinstance(found, Found) and not found.victims and transaction.hold(found.bookings):
        return found.seated
    transaction.undo_to(mark)
    return None


def grow(transaction: UndoLog, attempt: AttemptRecord, role: Role, more: int) -> list[Seat]:
    """Places up to so many more members of a role in the cells of an attempt's cluster, with no victims."""
    state = transaction.state
    tenancy = tenancy_of(state)
    nodes = _nodes_for(state, state.jobs[attempt.job.id], attempt.job)
    required = attempt.job.gang.topology.required
    if required and required != CLUSTER:
        nodes &= _domain(state, required, attempt.bookings[0].node)
    seats: list[Seat] = []
    while len(seats) < more and tenancy.cells.has(attempt.key):
        mark, undone = transaction.mark(), tenancy.undo.mark()
        found = tenancy.cells.grow(attempt.key, role.task.gpus, _suggestion(state, tenancy, nodes))
        if found is None:
            break
        transaction.step_in_cells(undone, (Grown(attempt.key, told(found)),))
        rank = 1 + max(slot.rank for slot in attempt.placement.slots) + len(seats)
        booking = _booking(state, tenancy, attempt.job, role.name, found, rank)
        short = _short_node(transaction, (booking,), ())
        if short is not None or not transaction.hold((booking,)):
            transaction.undo_to(mark)
            nodes &= ~state.topology.bit[booking.node]
            continue
        seats.append(Seat(role.name, booking))
    return seats


def shrink(transaction: UndoLog, attempt: AttemptRecord, bookings: list[Booking]) -> None:
    """As if members of an attempt gave their cells back."""
    tenancy = tenancy_of(transaction.state)
    for booking in bookings:
        node = transaction.state.topology.nodes[booking.node].name
        found = tenancy.seat_at(attempt.key, node, members(booking.devices)) if booking.devices else None
        if found is not None:
            undone = tenancy.undo.mark()
            step = Shrunk(attempt.key, found.node, tuple(found.indices))
            tenancy.cells.shrink(attempt.key, found)
            transaction.step_in_cells(undone, (step,))


def tenancy_of(state: State) -> Tenancy:
    assert state.cells is not None, "this cluster has no virtual clusters"
    return state.cells


def search(transaction: UndoLog, record: JobRecord) -> Found | Reason:
    """What the cells choose for a job, of what also has the CPUs, memory and closeness that it asks for."""
    state = transaction.state
    reason: Reason | None = None
    choose = _choose_shares if shares_leaves(record.asked) else _choose
    for nodes in _regions(state, record):
        left = nodes
        for _ in range(TRIES_MAX):
            mark = transaction.mark()
            try:
                found = choose(transaction, record, left)
            except CellError:
                return Reason.NEVER_FITS
            if isinstance(found, Reason):
                reason = reason or found
                break
            short = _unfit_node(transaction, record, found, nodes)
            if short is None:
                return found
            transaction.undo_to(mark)
            reason = Reason.AMOUNT
            left &= ~state.topology.bit[short]
    if record.asked.gang.topology.required and reason is not Reason.QUOTA:
        return Reason.TOPOLOGY
    return reason or Reason.GPUS


def _choose(transaction: UndoLog, record: JobRecord, nodes: int) -> Found | Reason:
    """What the cells choose of some nodes, done among the cells."""
    state = transaction.state
    tenancy = tenancy_of(state)
    request = tenancy.request(record)
    assert request is not None, f"{record.job.id} asks for no devices"
    mark, undone = transaction.mark(), tenancy.undo.mark()
    suggestion = _suggestion(state, tenancy, nodes)
    outcome = tenancy.cells.schedule(replace(request, ignores_suggestions=suggestion.are_all), suggestion)
    group = outcome.group
    if group is None:
        return _reason(tenancy, request, outcome)
    downgraded = tuple(each.name for each in outcome.lazily_preempted)
    step = Seated(group.name, tuple(told(each) for each in group.seats), downgraded)
    transaction.step_in_cells(undone, (step,))
    victims = _victims(state, tenancy, outcome)
    if victims is None:
        transaction.undo_to(mark)
        return Reason.UNDECIDED
    seated = _seated(state, tenancy, record.asked, group)
    if seated is None:
        transaction.undo_to(mark)
        return Reason.AMOUNT
    return Found(seated, victims)


def _victims(state: State, tenancy: Tenancy, outcome: Outcome) -> tuple[AttemptRecord, ...] | None:
    """The attempts in the way. None if one has just got its cells by this very plan: it yields to no job in it."""
    names = tenancy.attempts_in((*outcome.cancelled, *(each.name for each in outcome.victims)))
    found = [state.attempt(job, int(number)) for job, _, number in (name.rpartition("/") for name in names)]
    victims = tuple(victim for victim in found if victim is not None)
    return victims if len(victims) == len(found) else None


def _choose_shares(transaction: UndoLog, record: JobRecord, nodes: int) -> Found | Reason:
    """Parts of leaves: of those that jobs of its cluster share already, the fullest first, or of new ones."""
    state, job = transaction.state, record.asked
    key = f"{job.id}/{record.next_attempt}"
    gang = GangTrial(state.fit, state.packing, job)
    mark = transaction.mark()
    held: list[Booking] = []
    victims: dict[str, AttemptRecord] = {}
    for path, task in all_tasks_of(job):
        ask = state.fit.ask(task, job)
        found = _join(transaction, job, key, ask, nodes) or _open(transaction, job, key, ask, nodes)
        if isinstance(found, Reason):
            transaction.undo_to(mark)
            return found
        (node, device, portion), others = found
        victims.update((victim.key, victim) for victim in others)
        booking = Booking(node, 1 << device, ask.needs, portion, f"{job.id}#{len(gang.seats)}")
        gang.seats.append(Seat(path, booking))
        # Two tasks of a gang may share one device: the second sees what the first has taken.
        if transaction.hold((booking,)):
            held.append(booking)
    transaction.release(reversed(held))
    return Found(gang, tuple(victims.values()))


Part = tuple[tuple[int, int, Portion], tuple[AttemptRecord, ...]]
"""A node, a device and a part of it; and the attempts that have to leave it first."""


def _join(transaction: UndoLog, job: Job, key: str, ask: Ask, nodes: int) -> Part | None:
    """A part of a leaf that jobs of the cluster share already."""
    state = transaction.state
    tenancy, capacity = tenancy_of(state), state.capacity
    best: tuple[int, str, tuple[int, int, Portion]] | None = None
    for leaf in tenancy.shared_by(job):
        node, device = _device_of(state, tenancy, leaf)
        wanted = ask.portions[state.fit.kind_of[node]]
        if not nodes >> node & 1 or not capacity.usable_shares(node) >> device & 1 or wanted is None:
            continue
        load = capacity.load(node, device)
        portion = fit_portion(load, wanted)
        if portion is not None and (best is None or load.free_permille < best[0]):
            best = load.free_permille, leaf, (node, device, portion)
    if best is None:
        return None
    undone = tenancy.undo.mark()
    tenancy.join(best[1], key)
    transaction.step_in_cells(undone, (Joined(key, best[1]),))
    return best[2], ()


def _open(transaction: UndoLog, job: Job, key: str, ask: Ask, nodes: int) -> Part | Reason:
    """A part of a leaf that no job shares yet."""
    state = transaction.state
    tenancy = tenancy_of(state)
    leaf, undone = tenancy.new_leaf(), tenancy.undo.mark()
    suggestion = _suggestion(state, tenancy, nodes)
    request = replace(leaf_request_of(job, leaf), ignores_suggestions=suggestion.are_all)
    outcome = tenancy.cells.schedule(request, suggestion)
    if outcome.group is None:
        return _reason(tenancy, request, outcome)
    tenancy.join(leaf, key)
    downgraded = tuple(each.name for each in outcome.lazily_preempted)
    transaction.step_in_cells(undone, (Joined(key, leaf, told(outcome.group.seats[0]), downgraded),))
    victims = _victims(state, tenancy, outcome)
    node, device = _device_of(state, tenancy, leaf)
    wanted = ask.portions[state.fit.kind_of[node]]
    spec = state.topology.nodes[node]
    model = spec.gpu_type if spec.gpu_type in GEOMETRIES else None
    empty = DeviceLoad(model, int(spec.gpu_memory_gb * MB_PER_GB))
    portion = fit_portion(empty, wanted) if wanted is not None else None
    if victims is None:
        return Reason.UNDECIDED
    if portion is None:
        return Reason.GPUS
    return (node, device, portion), victims


def _device_of(state: State, tenancy: Tenancy, leaf: str) -> tuple[int, int]:
    cell = tenancy.cells.group(leaf).seats[0].leaves[0]
    assert cell is not None, f"{leaf} is shared on hardware"
    node, device = tenancy.place_of[cell.chain.name, cell.node_name, cell.index]
    return state.topology.number[node], device


def _reason(tenancy: Tenancy, request: Request, outcome: Outcome) -> Reason:
    match outcome.obstacle:
        case Obstacle.LIMIT:
            return Reason.QUOTA
        case Obstacle.BROKEN:
            return Reason.UNHEALTHY
        case _:
            return Reason.FRAGMENTED if tenancy.cells.free_leaves(request) >= request.leaves else Reason.GPUS


def _regions(state: State, record: JobRecord) -> Iterator[int]:
    """The nodes that may take a job, all together; or those of one domain after another, if it must lie in one."""
    nodes = _nodes_for(state, record, record.asked)
    required = record.asked.gang.topology.required
    if not required or required == CLUSTER:
        yield nodes
        return
    domains = state.topology.domains.get(required)
    regions = (
        (domain.nodes & nodes for domain in domains) if domains else (state.topology.bit[i] for i in members(nodes))
    )
    for _, region in zip(range(REGIONS_MAX), filter(None, regions), strict=False):
        yield region


def _nodes_for(state: State, record: JobRecord, job: Job) -> int:
    """Nodes with the labels, taints and kinds of GPU that a job asks for, and that stay open for long enough."""
    nodes = everything = state.topology.everything
    for task in record.tasks.values():
        if task.gpus:
            # Where a gang asks for one kind of GPU, the cells look at no other.
            others = everything & ~_of_kind(state, task.gpu_types[0]) if len(task.gpu_types) == 1 else 0
            nodes &= state.fit.ask(task, job).eligible | others
    suggested = suggested_to(job)
    if suggested is not None:
        number = state.topology.number
        nodes &= from_members([number[name] for name in suggested if name in number], len(state.topology.nodes))
    if state.cluster.maintenance:
        for node in closing(state, record, state.now):
            nodes &= ~state.topology.bit[node]
    return nodes


def _of_kind(state: State, gpu_type: str) -> int:
    capacity = state.capacity
    kind = capacity.gpu_types.index(gpu_type) if gpu_type in capacity.gpu_types else -1
    return from_members([i for i, each in enumerate(capacity.type_of) if each == kind], len(capacity.type_of))


def _domain(state: State, level: str, node: int) -> int:
    """The nodes of the domain of a level that a node lies in."""
    if level not in state.topology.domains:
        return state.topology.bit[node]
    return state.topology.domains[level][state.topology.domain_of[level][node]].nodes


def _suggestion(state: State, tenancy: Tenancy, nodes: int) -> Suggestion:
    if nodes == state.topology.everything:
        return Suggestion()
    names = (tenancy.name_of.get(state.topology.nodes[node].name, "") for node in members(nodes))
    return Suggestion(frozenset(names), are_all=False)


def _seated(state: State, tenancy: Tenancy, job: Job, group: Group) -> GangTrial | None:
    """The seats of a group as those of a gang. Tasks without devices go wherever they fit."""
    gang = GangTrial(state.fit, state.packing, job)
    places = seats_of(job, group)
    at = 0
    held: list[GangTrial] = []
    for path, task in all_tasks_of(job):
        rank = len(gang.seats)
        if task.gpus:
            gang.seats.append(Seat(path, _booking(state, tenancy, job, path, places[at][1], rank)))
            at += 1
            continue
        alone = GangTrial(state.fit, state.packing, replace(job, gang=Gang((Role(path, task=task),)), parallel=None))
        if not alone.seat():
            break
        held.append(alone)
        gang.seats.append(Seat(path, alone.seats[0].booking._replace(holder=f"{job.id}#{rank}")))
    for each in held:
        each.undo()
    return gang if len(gang.seats) == sum(1 for _ in all_tasks_of(job)) else None


def _booking(state: State, tenancy: Tenancy, job: Job, path: str, seat: CellSeat, rank: int) -> Booking:
    """What a seat takes of its node."""
    node, devices = "", 0
    for leaf in seat.leaves:
        assert leaf is not None, "a new seat is on hardware"
        node, device = tenancy.place_of[leaf.chain.name, leaf.node_name, leaf.index]
        devices |= 1 << device
    needs = state.fit.ask(state.jobs[job.id].tasks[path], job).needs
    return Booking(state.topology.number[node], devices, needs, None, f"{job.id}#{rank}")


def _unfit_node(transaction: UndoLog, record: JobRecord, found: Found, nodes: int) -> int | None:
    """A node that a gang cannot have as the cells chose it: it lacks an amount, or the gang is not close enough."""
    short = _short_node(transaction, found.bookings, found.victims)
    if short is not None:
        return short
    required = record.asked.gang.topology.required
    if not required or required == CLUSTER:
        return None
    state = transaction.state
    for booking in found.bookings:
        if not nodes >> booking.node & 1:
            return next(each.node for each in found.bookings if each.devices)
    if required != NODE and required not in state.topology.domains:
        first = found.bookings[0].node
        groups = state.topology.layouts[first].levels.get(required, ())
        together = 0
        for booking in found.bookings:
            together |= booking.devices
        if not any(together & ~group == 0 for group in groups):
            return first
    return None


def _short_node(transaction: UndoLog, bookings: tuple[Booking, ...], victims: tuple[AttemptRecord, ...]) -> int | None:
    """The first node that lacks an amount, once terminating attempts and the victims have left."""
    wanted: dict[tuple[int, int], int] = {}
    for booking in bookings:
        for number, amount in booking.needs:
            wanted[booking.node, number] = wanted.get((booking.node, number), 0) + amount
    amounts = transaction.state.capacity.amounts
    for (node, number), amount in wanted.items():
        of = amounts[number]
        left = of.total[node] - of.held[node] + of.ceding[node] - of.claimed[node]
        for victim in victims:
            for booking in victim.bookings if not victim.ceding else ():
                if booking.node == node and booking not in victim.removing:
                    left += sum(size for each, size in booking.needs if each == number)
        if left < amount:
            return node
    return None
