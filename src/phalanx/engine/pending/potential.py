"""Potential capacity: which requests nodes with freed capacity may help.

A request that was proven infeasible stays so until a node that is eligible for one of its tasks has the GPUs of its
smallest task: free, once those leave that are terminating, or by preemption where the policy preempts.
"""

from __future__ import annotations

from phalanx.cluster.bits import members
from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.state.records import JobRecord, PreemptionGroup
from phalanx.engine.state.requests import ALL, Request, Requests
from phalanx.engine.state.state import State
from phalanx.policy.policy import Targets

NODES_MAX = 64
"""Nodes with freed capacity up to which each is looked at for every preemption group; beyond it, all are helped."""

Having = list[int]
"""For every number of GPUs, the nodes that may offer so many."""


class Potential:
    """What nodes may offer at the moment of a decision; worked out anew once something has grown."""

    def __init__(self, state: State, builder: PlanBuilder, requests: Requests) -> None:
        self.state = state
        self.builder = builder
        self._requests = requests
        self._keeps = state.policy.targets is Targets.KEEP
        self._preempts = state.policy.preempts
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
        if self._keeps:
            group = self.state.preemption_group(record.job)
            having = self._by_group.get((nodes, group))
            if having is None:
                having = self._by_group[nodes, group] = self._with_victims(record, nodes)
            return bool(here & having[min(request.least, len(having) - 1)])
        gpus = self.builder.free_soon + self.state.gpus_behind(self.state.key(record))
        return gpus >= record.gpus_min or bool(here & self._with(request.least))

    def _with(self, gpus: int) -> int:
        """Nodes that have so many GPUs, or will once those have left that are terminating."""
        if not gpus:
            return ALL
        if self._soon is None:
            self._soon = self._once_left()
        found = self._soon[gpus] if gpus < len(self._soon) else 0
        for having in self.state.capacity.with_free[gpus:]:
            found |= having
        return found

    def _once_left(self) -> Having:
        capacity, bit = self.state.capacity, self.state.topology.bit
        left: dict[int, int] = {}
        for attempt in self.builder.leaving.values():
            for booking in attempt.bookings:
                # Of shared devices it is not known that they are ceded; all that share one may be terminating.
                shared = booking.devices if booking.portion is not None else 0
                left[booking.node] = left.get(booking.node, 0) | shared
        found = [0] * (capacity.gpus_max + 2)
        for node, shared in left.items():
            soon = capacity.free[node] | (capacity.ceding[node] | shared) & ~capacity.claimed[node]
            found[soon.bit_count()] |= bit[node]
        return _at_least(found)

    def _with_victims(self, record: JobRecord, nodes: int) -> Having:
        """Nodes by the GPUs that are free there or held by attempts that leave or may be preempted for a job."""
        capacity, bit = self.state.capacity, self.state.topology.bit
        found = [0] * (capacity.gpus_max + 2)
        if nodes.bit_count() > NODES_MAX:
            return [ALL] * len(found)
        for node in members(nodes):
            gpus = capacity.free[node].bit_count() + self._preemptible(node, record)
            found[min(gpus, capacity.gpus_max)] |= bit[node]
        return _at_least(found)

    def _preemptible(self, node: int, record: JobRecord) -> int:
        leaving, yields = self.builder.leaving, self.state.yields
        return sum(
            booking.devices.bit_count()
            for attempt in self.state.on_node.get(node, {}).values()
            if attempt.key in leaving or yields(record, attempt)
            for booking in attempt.bookings
            if booking.node == node
        )


def _at_least(exactly: list[int]) -> Having:
    """Of nodes that have 0, 1, 2, … GPUs, as sets, those that have at least so many."""
    for gpus in range(len(exactly) - 2, -1, -1):
        exactly[gpus] |= exactly[gpus + 1]
    return exactly
