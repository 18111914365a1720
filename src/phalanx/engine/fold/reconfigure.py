"""Reconfiguration: another cluster or another policy, under work that goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from phalanx.cluster.capacity import Booking, Capacity
from phalanx.cluster.cluster import Cluster, Health, Node
from phalanx.cluster.device import FULL_PERMILLE
from phalanx.engine.fold import attempts, ending, enqueue, foreign, holding, maintenance, patience
from phalanx.engine.fold.adjust import settle
from phalanx.engine.fold.request import take_request
from phalanx.engine.quota.quotas import Quotas
from phalanx.engine.state.ends import Ends
from phalanx.engine.state.records import AttemptRecord, JobRecord, Phase, StopReason, shape_of
from phalanx.engine.state.running_order import RunningOrder
from phalanx.engine.state.state import State
from phalanx.engine.transaction.suspension import request_of
from phalanx.placement.packings import packing as packing_named
from phalanx.policy.policy import Targets
from phalanx.policy.registry import policy as policy_named
from phalanx.policy.view import Adjustment
from phalanx.protocol.event import ClusterChanged, JobSubmitted
from phalanx.protocol.plan import Claim, Plan
from phalanx.protocol.reason import Reason
from phalanx.workload.gang import Role, Topology


def check_cluster(state: State, cluster: Cluster) -> None:
    """Raises ValueError if work that is not over could not go on in a cluster at all."""
    levels = (*cluster.levels, "cluster")
    queues = {queue.path: None for queue in cluster.queues}
    for record in state.jobs.values():
        if record.final is not None:
            continue
        for level in _levels_asked(record):
            if level not in levels:
                raise ValueError(f"job {record.job.id} asks for the level {level!r}, which the cluster would not have")
        if queues and record.job.queue not in queues:
            raise ValueError(f"job {record.job.id} is in the queue {record.job.queue!r}, which there would not be")


def _levels_asked(record: JobRecord) -> Iterator[str]:
    yield from _levels(record.job.gang.topology)
    yield from _levels_of(record.job.gang.roles)


def _levels_of(roles: tuple[Role, ...]) -> Iterator[str]:
    for role in roles:
        yield from _levels(role.topology)
        yield from _levels_of(role.members)


def _levels(topology: Topology) -> Iterator[str]:
    yield from (level for level in (topology.required, topology.preferred) if level)


def stopped_by(state: State, cluster: Cluster) -> tuple[str, ...]:
    """The attempts that a change to another cluster would stop: those on nodes that it lacks or has with less."""
    gone = _retiring(state, cluster)
    return tuple(
        attempt.key
        for attempt in state.attempts()
        if any(state.topology.nodes[booking.node].name in gone for booking in attempt.bookings)
    )


def change_cluster(state: State, cluster: Cluster) -> None:
    """Takes on another cluster. Nodes it lacks, or has with less than attempts hold, stay until those have left."""
    _restore_health(state)
    if state.cells is not None or cluster.cells is not None:
        _return_claims(state)
    _discard_kept(state, cluster)
    retiring = _retiring(state, cluster)
    kept = tuple(node for node in cluster.nodes if node.name not in retiring)
    levels = len(cluster.levels_above)
    ghosts = tuple(replace(node, path=(node.path + ("",) * levels)[:levels]) for node in retiring.values())
    state.cluster_to_be = cluster if ghosts else None
    _rebuild(state, replace(cluster, nodes=(*kept, *ghosts)))
    for name in retiring:
        number = state.topology.number[name]
        state.retiring[name] = state.capacity.health[number]
        state.capacity.set_health(number, Health.FAILED)
        for attempt in list(state.on_node.get(number, {}).values()):
            ending.want_stopped(state, attempt, StopReason.HARDWARE)


def _discard_kept(state: State, cluster: Cluster) -> None:
    """Suspended jobs whose nodes are to go, or to have less, start elsewhere. A claim of theirs is given back."""
    to_be = {node.name: node for node in cluster.nodes}
    for job in list(state.kept):
        record = state.jobs[job]
        assert record.kept is not None, f"nothing is kept of job {job}"
        node = state.topology.nodes[record.kept.booking.node]
        stored = {f"storage.{tier}": gb for tier, gb in node.storage_gb}
        if cluster.cells is None and _holds_as_much(to_be.get(node.name), node, stored):
            continue
        if record.attempt is not None and record.attempt.phase is Phase.CLAIMED:
            ending.withdraw(state, record.attempt.key)
        if record.attempt is None:
            ending.discard(state, record, StopReason.HARDWARE)


def _return_claims(state: State) -> None:
    """A job that has no more than a claim is pending again: under other cells it may have others."""
    for attempt in list(state.attempts()):
        if attempt.phase is Phase.CLAIMED:
            ending.withdraw(state, attempt.key)


def retire(state: State) -> None:
    """Once no attempt is left on nodes that are to go, the cluster is what it was to be."""
    if state.cluster_to_be is not None and not _retiring(state, state.cluster_to_be):
        cluster, state.cluster_to_be = state.cluster_to_be, None
        _restore_health(state)
        _rebuild(state, cluster)


def _restore_health(state: State) -> None:
    """Nodes that were only to be left are as healthy as they were."""
    for name, health in state.retiring.items():
        state.capacity.set_health(state.topology.number[name], health)
    state.retiring.clear()


def _retiring(state: State, cluster: Cluster) -> dict[str, Node]:
    """Nodes, as they are now, on which an attempt holds something that the cluster would not have, or a device is being
    repartitioned.
    """
    to_be = {node.name: node for node in cluster.nodes}
    occupied = {number: None for number, present in state.on_node.items() if present}
    occupied.update((state.topology.number[cut.node], None) for cut in state.cuts.values())
    nodes = [(state.topology.nodes[number], _stored(state, number)) for number in occupied]
    return {node.name: node for node, stored in nodes if not _holds_as_much(to_be.get(node.name), node, stored)}


def _stored(state: State, number: int) -> dict[str, int]:
    """What attempts have, or will have, of the storage tiers of a node."""
    now: dict[str, int] = {}
    then: dict[str, int] = {}
    for attempt in state.on_node.get(number, {}).values():
        sums = ([] if attempt.waits else [now]) + ([] if attempt.ceding else [then])
        for booking in (*attempt.bookings, *attempt.adding):
            for amount, need in booking.needs if booking.node == number else ():
                name = state.capacity.amounts[amount].name
                for each in sums:
                    each[name] = each.get(name, 0) + need
    return {name: max(now.get(name, 0), then.get(name, 0)) for name in (*now, *then)}


def _holds_as_much(new: Node | None, old: Node, stored: Mapping[str, int]) -> bool:
    """Whether everything that an attempt may hold of a node is still there, and of storage what attempts hold."""
    if new is None or (new.gpu_type, new.split) != (old.gpu_type, old.split):
        return False
    stores = dict(new.storage_gb)
    return (
        new.gpus >= old.gpus
        and new.gpu_memory_gb >= old.gpu_memory_gb
        and new.cpus_milli >= old.cpus_milli
        and new.memory_mb >= old.memory_mb
        and new.nics >= old.nics
        and all(stores.get(tier, 0) >= stored.get(f"storage.{tier}", 0) for tier, _ in old.storage_gb)
    )


def _rebuild(state: State, cluster: Cluster) -> None:
    """The State over again on another cluster: the same attempts hold, cede and claim what they did."""
    maintenance.reopen(state)
    before, knew_lengths = state.capacity, state.reserves
    present = list(state.attempts())
    packing, usages = state.packing, [(queue, state.usage(queue)) for queue in state.queues()]
    told_apart, tenancy = state.tells_apart, state.cells
    quotas = state.quotas
    state.define(cluster)
    state.packing = packing
    state.quotas.take_over(usages)
    for queue in state.quotas.leaves():
        state.know_queue(queue)
    translate = _Translation(before, state.capacity)
    translate.health()
    translate.layouts()
    for cut in state.cuts.values():
        state.capacity.set_cutting(state.topology.number[cut.node], cut.device, cutting=True)
    state.on_node.clear()
    for attempt in present:
        _settle_in(state, attempt, translate)
    for job in state.kept:
        _settle_kept(state, state.jobs[job], translate)
    state.count_preemptible()
    _time_least_runs(state, present, quotas)
    for attempt in present:
        if attempt.waits:
            for booking in attempt.bookings:
                state.capacity.claim(booking)
    foreign.settle_all(state)
    state.reservations = ()
    state.reservations_stale = True
    if state.cells is not None:
        state.cells.adopt(tenancy, present)
    if told_apart is not state.tells_apart:
        _line_up_anew(state)
    if state.reserves and not knew_lengths:
        holding.know_lengths(state)
    maintenance.set_out(state)
    patience.expect_all(state)
    _try_all(state)


def _time_least_runs(state: State, present: list[AttemptRecord], before: Quotas) -> None:
    """Has attempts be looked at in time whose queues let them run for another while from now on."""
    for attempt in present:
        queue = attempt.job.queue
        if attempt.started_ms < 0 or queue not in state.quotas.accounts:
            continue
        if queue not in before.accounts or before.least_runs_ms(queue) != state.quotas.least_runs_ms(queue):
            attempts.time_least_run(state, attempt)


def _settle_in(state: State, attempt: AttemptRecord, translate: _Translation) -> None:
    ceding = [*attempt.bookings] if attempt.ceding else [*attempt.removing]
    attempt.bookings = [translate(booking) for booking in attempt.bookings]
    attempt.removing = [translate(booking) for booking in attempt.removing]
    attempt.adding = [translate(booking) for booking in attempt.adding]
    for booking in attempt.bookings:
        if not attempt.waits:
            state.capacity.hold(booking)
        holding.arrive(state, attempt, booking)
    for booking in ceding:
        state.capacity.cede(translate(booking))
    if attempt.keeping is not None:
        own, moved = attempt.keeping
        attempt.keeping = translate(own), translate(moved)
        state.capacity.claim(attempt.keeping[0])
        state.capacity.hold(attempt.keeping[1])


def _settle_kept(state: State, record: JobRecord, translate: _Translation) -> None:
    assert record.kept is not None, f"nothing is kept of job {record.job.id}"
    record.kept = replace(record.kept, booking=translate(record.kept.booking))
    state.capacity.hold(record.kept.booking)


class _Translation:
    """What was booked in one capacity, said in the numbers of another."""

    def __init__(self, old: Capacity, new: Capacity) -> None:
        self.old = old
        self.new = new

    def __call__(self, booking: Booking) -> Booking:
        needs = tuple(
            (self.new.amount_number[self.old.amounts[number].name], amount) for number, amount in booking.needs
        )
        return booking._replace(node=self._node(booking.node), needs=needs)

    def _node(self, number: int) -> int:
        return self.new.topology.number[self.old.topology.nodes[number].name]

    def health(self) -> None:
        """Nodes and devices are as healthy as they were."""
        for number, node in enumerate(self.old.topology.nodes):
            if node.name in self.new.topology.number and self.old.health[number] is not Health.HEALTHY:
                self.new.set_health(self._node(number), self.old.health[number])
        for (number, device), health in self.old.device_health.items():
            if self._has(number, device):
                self.new.set_device_health(self._node(number), device, health)

    def layouts(self) -> None:
        """Devices are partitioned as they were."""
        for (number, device), load in self.old.loads.items():
            if self.old.partitioned[number] >> device & 1 and self._has(number, device):
                self.new.set_layout(self._node(number), device, load.layout)

    def _has(self, number: int, device: int) -> bool:
        name = self.old.topology.nodes[number].name
        return name in self.new.topology.number and device < self.new.topology.nodes[self._node(number)].gpus


def change_policy(state: State, policy: str, placement: str) -> None:
    """Decides by another policy from now on. What the old one remembered is forgotten; what jobs have had is not."""
    state.class_index = None
    in_line = _leave_line(state)
    state.policy = policy_named(policy)
    state.count_preemptible()
    if placement:
        state.packing = packing_named(placement)
    state.memory = {}
    state.spending = state.spending.with_half_life(state.policy.half_life_ms or 0, state.now)
    state.reservations = ()
    state.head = ""
    _let_all_run(state)
    if state.policy.observes_plans:
        state.policy.observe(state.memory, ClusterChanged(state.cluster), state.now)
    for record in state.jobs.values():
        if record.final is None:
            _forget_policy(state, record)
            # The new policy learns of the jobs that are here as it would have when they came.
            state.policy.observe(state.memory, JobSubmitted(record.job), state.now)
    claims = tuple(Claim(each.job.id, each.number, each.placement) for each in state.attempts_present())
    state.policy.observe_plan(state.memory, Plan(claims), state.now)
    _stand_anew(state)
    for record in in_line:
        enqueue.enqueue(state, record)
    _try_all(state)


def _let_all_run(state: State) -> None:
    """What the old policy wanted of shares is forgotten; an attempt that was suspended by it goes on."""
    state.reviews.clear()
    state.adjustments.clear()
    for attempt in state.attempts_present():
        if attempt.is_revocable:
            state.adjustments[attempt.job.id] = Adjustment(compute_permille=FULL_PERMILLE, lent_mb=0)
            settle(state, attempt.job.id)


def _line_up_anew(state: State) -> None:
    """Enqueues all pending jobs again, where something else of them matters from now on."""
    in_line = _leave_line(state)
    for record in in_line:
        record.shape = shape_of(record.asked, state.tells_apart)
        enqueue.enqueue(state, record)


def _leave_line(state: State) -> list[JobRecord]:
    in_line = [state.jobs[job] for kind in state.classes.values() for _, job in kind.jobs]
    in_line.sort(key=lambda record: record.number)
    for record in in_line:
        enqueue.leave(state, record)
    return in_line


def _forget_policy(state: State, record: JobRecord) -> None:
    """Has a pending job ask for what it was submitted with, and drops the change of its key that the old policy set."""
    record.marks.clear()
    record.sizes = {}
    record.change_ms = -1
    take_request(record, request_of(state, record), state.tells_apart)


def _stand_anew(state: State) -> None:
    """Running jobs are in the running order, and are expected to end, as the new policy has it."""
    for attempt in state.attempts():
        attempt.standing = None
    state.standing, state.ends = RunningOrder(), Ends()
    for attempt in list(state.attempts()):
        if state.policy.targets is not Targets.KEEP and not attempt.ceding:
            state.stand(attempt, state.order(state.jobs[attempt.job.id]))
        if state.reserves:
            holding.expect_end(state, attempt)
        enqueue.rekey(state, state.jobs[attempt.job.id])


def _try_all(state: State) -> None:
    """Nothing that was found before holds any more."""
    state.capacity.grown = state.topology.everything
    state.newest_class = state.seq
    state.class_index = None
    for kind in state.classes.values():
        kind.born = state.seq
        kind.verdict = Reason.UNDECIDED
