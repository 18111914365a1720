"""Offers: what nodes on which something grew may have for those who were refused before."""

from __future__ import annotations

from itertools import islice

from phalanx.cluster.bits import members
from phalanx.engine.draft import Draft
from phalanx.engine.records import Group, JobRecord
from phalanx.engine.state import State
from phalanx.placement.fit import Ask
from phalanx.policy.policy import Targets

FRESH_MAX = 64
"""Nodes on which something grew up to which each is looked at for every class; past it classes are simply tried."""

Offer = list[int]
"""For every number of GPUs, the nodes that may offer a job so many."""


class Offers:
    """Those of a decision, as far as it is. `last` says that what nodes offer falls until something grows.

    `fresh` are the nodes on which something grew; `by_group` is what they offer to those who are kin, or
    to everybody where nobody is stopped for another, once somebody has asked.
    """

    def __init__(self, state: State, draft: Draft) -> None:
        self.state = state
        self.draft = draft
        policy = state.policy
        self._keeps = policy.targets is Targets.KEEP
        self._preempts = policy.preempts
        # Not where it depends on what queues have.
        self.last = self._keeps and not state.quotas and not policy.victims_vary
        self.gpus_max = state.capacity.gpus_max + 1
        self._grow_fresh()
        self.by_group: dict[Group | None, Offer] = {}
        self._leaving: dict[int, int] | None = None
        self._left_nodes = 0
        self._yielding: dict[int, dict[Group, int]] = {}
        self._left_so_far = len(draft.leaving)

    def open_again(self) -> None:
        """Kept promises have opened devices: what nodes offer does not only fall any more."""
        self.last = False
        self._grow_fresh()

    def look_anew(self) -> None:
        """Somebody leaves, or has given a claim back: what nodes offer is to be found out anew."""
        self._leaving = None
        self._forget_whom_others_leave()
        self.by_group.clear()
        self._grow_fresh()

    def _grow_fresh(self) -> None:
        self.fresh = self.draft.fresh
        self.few_are_fresh = self.fresh.bit_count() <= FRESH_MAX
        self._listed: list[int] | None = None

    @property
    def fresh_nodes(self) -> list[int]:
        """Nodes on which something grew."""
        if self._listed is None:
            self._listed = list(members(self.fresh))
        return self._listed

    def to(self, record: JobRecord) -> Offer:
        """For every number of GPUs, the nodes on which something grew that may offer a job so many.

        It is the same for all who are kin, and for everybody where nobody is stopped for another.
        """
        if not self._keeps:
            return self._at_least(self._offer(record))
        group = self.state.kin(record.job) if self._preempts else None
        found = self.by_group.get(group)
        if found is None:
            found = self._at_least(self._offer(record)) if self._preempts else self._to_everybody()
            self.by_group[group] = found
        return found

    def _to_everybody(self) -> Offer:
        """What nodes offer where nobody is stopped for another: what is free, and what those leave who leave anyway."""
        left, bit, free = self._left, self.state.topology.bit, self.state.capacity.free
        others = self.fresh & ~self._left_nodes
        found = [having & others for having in self.state.capacity.with_free]
        found += [0] * (self.gpus_max + 1 - len(found))
        for node, gpus in left.items():
            if bit[node] & self.fresh:
                found[min(free[node].bit_count() + gpus, self.gpus_max - 1)] |= bit[node]
        return _at_least(found)

    def _at_least(self, offer: list[tuple[int, int]]) -> Offer:
        """The nodes of an offer by how many GPUs they have at least; more than any node has, none offers."""
        found = [0] * (self.gpus_max + 1)
        bit = self.state.topology.bit
        for node, gpus in offer:
            found[min(gpus, self.gpus_max - 1)] |= bit[node]
        return _at_least(found)

    def _offer(self, record: JobRecord) -> list[tuple[int, int]]:
        """For each node on which something grew: the GPUs a job could have there, at most."""
        free = self.state.capacity.free
        if self.state.policy.targets is not Targets.KEEP:
            gpus = self.draft.free_soon + self.state.gpus_behind(self.state.key(record))
            if gpus >= record.gpus_min:
                return [(node, self.state.topology.nodes[node].gpus) for node in self.fresh_nodes]
            return [(node, free[node].bit_count()) for node in self.fresh_nodes]
        return [(node, free[node].bit_count() + self._stoppable(node, record)) for node in self.fresh_nodes]

    def sees_room(self, asks: tuple[Ask, ...]) -> bool:
        """Whether a node on which something grew may have room for a task: a quick look."""
        fresh = self.fresh
        return any(
            ask.eligible & fresh and (ask.portions or not ask.gpus or ask.eligible & fresh & self._open_nodes(ask.gpus))
            for ask in asks
        )

    def _open_nodes(self, gpus: int) -> int:
        """Nodes with so many GPUs free, and those that somebody is leaving."""
        found = 0
        for having in self.state.capacity.with_free[gpus:]:
            found |= having
        return found | (self._left_nodes if self._left else 0)

    def takes_a_task(self, asks: tuple[Ask, ...], record: JobRecord, with_victims: bool) -> bool:
        """Whether a node on which something grew takes a task of a job: as it is, or once others have left."""
        for ask in asks:
            nodes = ask.eligible & self.fresh
            if nodes and (ask.portions or not ask.gpus):
                return True
            if with_victims:
                if self._offers_gpus(nodes, ask, record):
                    return True
            elif self._has_room(nodes, ask):
                return True
        return False

    def _has_room(self, nodes: int, ask: Ask) -> bool:
        """Whether one of the nodes, on which something grew, has what a task takes."""
        free, bit = self.state.capacity.free, self.state.topology.bit
        for node in self.fresh_nodes:
            if free[node].bit_count() >= ask.gpus and nodes & bit[node] and self._has_amounts(ask, node):
                return True
        return False

    def _offers_gpus(self, nodes: int, ask: Ask, record: JobRecord) -> bool:
        """Whether one of the nodes has the GPUs, once others have left it."""
        if self._keeps and not self._preempts:
            return bool(nodes & self.to(record)[min(ask.gpus, self.gpus_max)])
        if self.last:
            nodes &= self.to(record)[min(ask.gpus, self.gpus_max)]
        bit = self.state.topology.bit
        return bool(nodes) and any(nodes & bit[node] and self._has_gpus(ask, node, record) for node in self.fresh_nodes)

    def _has_amounts(self, ask: Ask, node: int) -> bool:
        amounts = self.state.capacity.amounts
        return all(amounts[number].free[node] >= amount for number, amount in ask.needs)

    def _has_gpus(self, ask: Ask, node: int, record: JobRecord) -> bool:
        return self.state.capacity.free[node].bit_count() + self._stoppable(node, record) >= ask.gpus

    def _stoppable(self, node: int, record: JobRecord) -> int:
        """GPUs on a node held by those who are leaving or may be stopped or shrunk for the job."""
        if not self._keeps:
            gpus = self.draft.free_soon + self.state.gpus_behind(self.state.key(record))
            return self.state.topology.nodes[node].gpus if gpus >= record.gpus_min else 0
        if not self._preempts:
            # Who may have back what others borrow is tried whatever has grown.
            return self._left.get(node, 0)
        if not self.last:
            return self._yields(node, record)
        by_group = self._yielding.setdefault(node, {})
        group = self.state.kin(record.job)
        if group not in by_group:
            by_group[group] = self._yields(node, record)
        return by_group[group]

    def _yields(self, node: int, record: JobRecord) -> int:
        return sum(
            booking.devices.bit_count()
            for attempt in self.state.on_node.get(node, {}).values()
            if attempt.key in self.draft.leaving or self.state.yields(record, attempt)
            for booking in attempt.bookings
            if booking.node == node
        )

    @property
    def _left(self) -> dict[int, int]:
        """GPUs on nodes held by those who are leaving, by node."""
        if self._leaving is None:
            self._leaving, self._left_nodes = {}, 0
            for attempt in self.draft.leaving.values():
                for booking in attempt.bookings:
                    self._leaving[booking.node] = self._leaving.get(booking.node, 0) + booking.devices.bit_count()
                    self._left_nodes |= self.state.topology.bit[booking.node]
        return self._leaving

    def _forget_whom_others_leave(self) -> None:
        """What is known of nodes holds until somebody else leaves them; leavers come last."""
        news = len(self.draft.leaving) - self._left_so_far
        for attempt in islice(reversed(self.draft.leaving.values()), max(news, 0)):
            for booking in attempt.bookings:
                self._yielding.pop(booking.node, None)
        self._left_so_far = len(self.draft.leaving)


def _at_least(exactly: list[int]) -> Offer:
    """Of nodes that have 0, 1, 2, … GPUs, as sets, those that have at least so many."""
    for gpus in range(len(exactly) - 2, -1, -1):
        exactly[gpus] |= exactly[gpus + 1]
    return exactly
