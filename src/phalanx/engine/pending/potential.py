"""Potential capacity: which requests nodes with freed capacity may help.

A request that was proven infeasible stays so until a node that is eligible for one of its tasks has the GPUs of its
smallest task: free, once those leave that are terminating, or by preemption where the policy preempts.
"""

from __future__ import annotations

from phalanx.cluster.bits import members
from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.preempt.need import OwnVictims
from phalanx.engine.state.records import JobRecord, PreemptionGroup
from phalanx.engine.state.requests import ALL, Request, Requests
from phalanx.engine.state.state import State
from phalanx.engine.state.yielding import yields
from phalanx.policy.policy import Targets

NODES_MAX = 64
"""Nodes with freed capacity up to which each is looked at for every preemption group; beyond it, all are helped."""

MANY = 1 << 62
"""More GPUs than any node has."""

Having = list[tuple[int, int]]
"""Numbers of GPUs, the least first, and the nodes that may offer at least so many."""


class Potential:
    """What nodes may offer at the moment of a decision; worked out anew once something has grown."""

    def __init__(self, state: State, builder: PlanBuilder, requests: Requests, own: OwnVictims | None) -> None:
        self.state = state
        self.builder = builder
        self._requests = requests
        self._own = own
        self._keeps = state.policy.targets is Targets.KEEP
        self._soon: Having | None = None
        self._by_group: dict[tuple[int, PreemptionGroup], Having] = {}

    def look_anew(self) -> None:
        """Capacity has grown: what was worked out does not hold any more."""
        self._soon = None
        self._by_group.clear()

    def helped(self, nodes: int) -> int:
        """The requests that nodes may help, where the policy preempts nothing."""
        found = 0
        for (eligible, least), mask in self._requests.by_nodes.items():
            if eligible & nodes & self._with(least):
                found |= mask
        return found

    def helps(self, record: JobRecord, request: Request, nodes: int) -> bool:
        """Whether nodes may help a job, where the policy preempts for it."""
        here = request.eligible & nodes
        if not here or not request.least:
            return bool(here)
        if self._own is not None and not self._own.may_leave_for(record):
            return bool(here & self._with(request.least))
        if self._keeps:
            group = self.state.preemption_group(record.job)
            having = self._by_group.get((nodes, group))
            if having is None:
                having = self._by_group[nodes, group] = self._with_victims(record, nodes)
            return bool(here & _with_at_least(having, request.least))
        gpus = self.builder.free_soon + self.state.gpus_behind(self.state.key(record))
        return gpus >= record.gpus_min or bool(here & self._with(request.least))

    def _with(self, gpus: int) -> int:
        """Nodes that have so many GPUs, or will once those have left that are terminating."""
        if not gpus:
            return ALL
        if self._soon is None:
            self._soon = _at_least(self._once_left())
        found = _with_at_least(self._soon, gpus)
        for _, having in self.state.capacity.by_free(gpus):
            found |= having
        return found

    def _once_left(self) -> dict[int, int]:
        """Nodes that are being left, by the GPUs that they will have then."""
        capacity, bit = self.state.capacity, self.state.topology.bit
        left: dict[int, int] = {}
        for attempt in self.builder.leaving.values():
            for booking in attempt.bookings:
                # Of shared devices it is not known that they are ceded; all that share one may be terminating.
                shared = booking.devices if booking.portion is not None else 0
                left[booking.node] = left.get(booking.node, 0) | shared
        found: dict[int, int] = {}
        for node, shared in left.items():
            soon = (capacity.free[node] | (capacity.ceding[node] | shared) & ~capacity.claimed[node]).bit_count()
            found[soon] = found.get(soon, 0) | bit[node]
        return found

    def _with_victims(self, record: JobRecord, nodes: int) -> Having:
        """Nodes by the GPUs that are free there or held by attempts that leave or may be preempted for a job."""
        capacity, bit = self.state.capacity, self.state.topology.bit
        if nodes.bit_count() > NODES_MAX:
            return [(MANY, ALL)]
        found: dict[int, int] = {}
        for node in members(nodes):
            gpus = min(capacity.free[node].bit_count() + self._preemptible(node, record), capacity.gpus_max)
            found[gpus] = found.get(gpus, 0) | bit[node]
        return _at_least(found)

    def _preemptible(self, node: int, record: JobRecord) -> int:
        leaving = self.builder.leaving
        return sum(
            booking.devices.bit_count()
            for attempt in self.state.on_node.get(node, {}).values()
            if attempt.key in leaving or yields(self.state, record, attempt)
            for booking in attempt.bookings
            if booking.node == node
        )


def _at_least(exactly: dict[int, int]) -> Having:
    """Of nodes that have exactly so many GPUs, as sets, those that have at least so many."""
    nodes = 0
    found: Having = []
    for gpus in sorted(exactly, reverse=True):
        nodes |= exactly[gpus]
        found.append((gpus, nodes))
    return found[::-1]


def _with_at_least(having: Having, gpus: int) -> int:
    for most, nodes in having:
        if most >= gpus:
            return nodes
    return 0
