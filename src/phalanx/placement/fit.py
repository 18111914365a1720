"""Fit: predicates that rule nodes out, each with its count. What load does not change is worked out once per shape."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from copy import copy
from dataclasses import dataclass
from functools import lru_cache

from phalanx.cluster.bits import from_members
from phalanx.cluster.capacity import CPUS, CPUS_LIMIT, MB_PER_GB, MEMORY, MEMORY_LIMIT, NICS, Capacity
from phalanx.cluster.cluster import NODE, Health, Node
from phalanx.cluster.device import DeviceLoad, Mode, Portion, add
from phalanx.cluster.device import fit as fit_portion
from phalanx.cluster.mig import GEOMETRIES
from phalanx.placement.sharing import wanted
from phalanx.workload.gang import Task
from phalanx.workload.job import Job
from phalanx.workload.selector import NONE_OF, selector_of
from phalanx.workload.sizes import leaves
from phalanx.workload.toleration import Toleration

TASKS_PER_NODE_MAX = 1 << 20
"""Tasks without GPUs that one node takes as far as GPUs go."""

NODE_NAME = "phalanx/node"
"""The label that every node has by itself: its name."""

HARD_EFFECTS = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """A task of a job, in the numbers of one cluster: which nodes can ever take it, and what it takes of one.

    `room` is how many such tasks all those nodes together hold when nothing else runs. `portions` is what a task that
    shares a device takes of it, by the device's kind (`Fit.kind_of`); empty if it takes whole devices.
    """

    gpus: int
    needs: tuple[tuple[int, int], ...]
    types: tuple[int, ...]
    eligible: int
    ruled_out: tuple[tuple[str, int], ...]
    room: int
    portions: tuple[Portion | None, ...] = ()


class Fit:
    """The predicates of one cluster."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self._nodes = capacity.topology.nodes
        self._bit = capacity.topology.bit
        self._healthy_rooms: dict[Ask, tuple[int, int]] = {}
        self._ideal: Fit | None = None
        self.ever: dict[Hashable, bool] = {}
        self._asks: dict[tuple[object, ...], Ask] = {}
        self._per_device: dict[Ask, list[int]] = {}
        self._labels: dict[tuple[str, str], int] = {}
        self._taints: dict[tuple[str, str, str], int] = {}
        self._soft_taints: dict[tuple[str, str, str], int] = {}
        self._types: dict[str, int] = {}
        self._makes = self._nodes_by_make()
        for i, node in enumerate(self._nodes):
            self._types[node.gpu_type] = self._types.get(node.gpu_type, 0) | self._bit[i]
            for label in ((NODE_NAME, node.name), *node.labels):
                self._labels[label] = self._labels.get(label, 0) | self._bit[i]
            for taint in node.taints:
                taints = self._taints if taint.effect in HARD_EFFECTS else self._soft_taints
                key = (taint.key, taint.value, taint.effect)
                taints[key] = taints.get(key, 0) | self._bit[i]
        kinds: dict[tuple[str, float], int] = {}
        self.kind_of = [kinds.setdefault((node.gpu_type, node.gpu_memory_gb), len(kinds)) for node in self._nodes]
        self._first_of_kind = [self._nodes[self.kind_of.index(kind)] for kind in kinds.values()]
        self.types_differ = len({node.gpu_type for node in self._nodes if node.gpus}) > 1
        self._shared_gb = {
            tier.name: tier.capacity_gb for tier in capacity.topology.cluster.storage if tier.scope != NODE
        }

    def _nodes_by_make(self) -> list[tuple[int, int]]:
        """Nodes that are made alike, as (the first of them, all of them): clusters have few makes of node."""
        makes: dict[tuple[object, ...], tuple[int, list[int]]] = {}
        for i, node in enumerate(self._nodes):
            totals = (amount.total[i] for amount in self.capacity.amounts)
            make = (node.gpu_type, node.gpus, node.gpu_memory_gb, *totals)
            makes.setdefault(make, (i, []))[1].append(i)
        return [(first, from_members(alike, len(self._nodes))) for first, alike in makes.values()]

    def ask(self, task: Task, job: Job) -> Ask:
        """The task in this cluster's numbers."""
        key = (task, job.node_selector, job.tolerations)
        ask = self._asks.get(key)
        if ask is None:
            ask = self._asks[key] = self._compile(task, job)
        return ask

    def of_types(self, gpu_types: Iterable[str]) -> int:
        """Nodes with GPUs of any of these types."""
        nodes = 0
        for name in gpu_types:
            nodes |= self._types.get(name, 0)
        return nodes

    def _compile(self, task: Task, job: Job) -> Ask:
        nodes = self.capacity.topology.everything
        ruled_out = []
        for name, passing in self._static_predicates(task, job):
            ruled_out.append((name, (nodes & ~passing).bit_count()))
            nodes &= passing
        room = self._room_on(task, nodes)
        needs, types = self.needs(task), self._type_numbers(task)
        return Ask(task.gpus, needs, types, nodes, tuple(ruled_out), room, self._portions(task))

    def _portions(self, task: Task) -> tuple[Portion | None, ...]:
        if task.share is None:
            return ()
        return tuple(self.portion(task, node) for node in self._first_of_kind)

    def portion(self, task: Task, node: Node) -> Portion | None:
        """What a task that shares a device takes of one of this node; None if the device cannot give it."""
        return wanted(task.share, _mig_model(node), _memory_mb(node))

    def per_device(self, ask: Ask) -> list[int]:
        """How many tasks that share a device one holds that is free, by its kind."""
        known = self._per_device.get(ask)
        if known is None:
            kinds = zip(ask.portions, self._first_of_kind, strict=True)
            known = self._per_device[ask] = [most_on(portion, node) for portion, node in kinds]
        return known

    def _with_total(self, number: int, amount: int) -> int:
        total = self.capacity.amounts[number].total
        return self._where(lambda i: total[i] >= amount)

    def _room_on(self, task: Task, nodes: int) -> int:
        """How many tasks a set of nodes holds when nothing else runs."""
        return sum(
            self.room(task, first) * (nodes & alike).bit_count() for first, alike in self._makes if nodes & alike
        )

    def room(self, task: Task, node: int) -> int:
        """How many tasks an idle node holds."""
        fits = self._nodes[node].gpus // task.gpus if task.gpus else TASKS_PER_NODE_MAX
        if task.share is not None:
            fits *= most_on(self.portion(task, self._nodes[node]), self._nodes[node])
        for number, amount in self.needs(task):
            fits = min(fits, self.capacity.amounts[number].total[node] // amount)
        return fits

    def _static_predicates(self, task: Task, job: Job) -> Iterable[tuple[str, int]]:
        everything = self.capacity.topology.everything
        all_nodes = self._nodes
        if task.gpu_types and task.gpus:
            yield "gpu_type", sum(self._types.get(name, 0) for name in dict.fromkeys(task.gpu_types))
        memory_gb = _device_memory_gb(task)
        if memory_gb:
            yield "gpu_memory", self._where(lambda i: all_nodes[i].gpu_memory_gb >= memory_gb)
        if task.share is not None:
            yield (
                "share",
                self._where(lambda i: bool(all_nodes[i].gpus) and self.portion(task, all_nodes[i]) is not None),
            )
        if task.gpus:
            yield "node_gpus", self._where(lambda i: all_nodes[i].gpus >= task.gpus)
        for number, amount in self.needs(task):
            yield f"node_{self.capacity.amounts[number].name}", self._with_total(number, amount)
        for tier, size_gb in task.storage_gb:
            if f"storage.{tier}" not in self.capacity.amount_number and not self._is_shared(tier, size_gb):
                yield f"storage.{tier}", 0
        for label in (*job.node_selector, *task.node_selector):
            yield self._selected(*label)
        not_tolerated: dict[str, int] = {}
        tolerations = (*job.tolerations, *task.tolerations)
        for taint, tainted in self._taints.items():
            if not any(_tolerates(toleration, taint) for toleration in tolerations):
                not_tolerated[taint[0]] = not_tolerated.get(taint[0], 0) | tainted
        for key, tainted in not_tolerated.items():
            yield f"taint {key}", everything & ~tainted

    def _selected(self, label: str, text: str) -> tuple[str, int]:
        """The predicate of a selector, and the nodes that it accepts. A value may have a comma, as it stands."""
        if (label, text) in self._labels:
            return f"selector {label}={text}", self._labels[label, text]
        values, excludes = selector_of(text)
        named = 0
        for value in values:
            named |= self._labels.get((label, value), 0)
        if excludes:
            return f"excluded {label}={text.removeprefix(NONE_OF)}", self.capacity.topology.everything & ~named
        return f"selector {label}={text}", named

    def _is_shared(self, tier: str, size_gb: int) -> bool:
        """Whether a tier that nodes share has so much. What is on it is not counted here: its own quotas keep it."""
        return tier in self._shared_gb and (not self._shared_gb[tier] or size_gb <= self._shared_gb[tier])

    def shunned(self, job: Job) -> int:
        """Nodes that a job goes to only if no other node will do: those with a taint of the effect PreferNoSchedule
        that one of its tasks does not tolerate.
        """
        nodes = 0
        if not self._soft_taints:
            return nodes
        for own in dict.fromkeys(role.task.tolerations for role, _ in leaves(job.gang.roles)):
            for taint, tainted in self._soft_taints.items():
                if not any(_tolerates(toleration, taint) for toleration in (*job.tolerations, *own)):
                    nodes |= tainted
        return nodes

    def labelled(self, label: str, value: str) -> int:
        """Nodes with a label."""
        return self._labels.get((label, value), 0)

    def _where(self, test: Callable[[int], bool]) -> int:
        """Nodes that pass a test of what they are made of: one of each make is tested."""
        found = 0
        for first, nodes in self._makes:
            if test(first):
                found |= nodes
        return found

    def _type_numbers(self, task: Task) -> tuple[int, ...]:
        types = self.capacity.gpu_types
        if not task.gpu_types:
            return tuple(range(len(types)))
        return tuple(types.index(name) for name in dict.fromkeys(task.gpu_types) if name in types)

    def needs(self, task: Task) -> tuple[tuple[int, int], ...]:
        """What a task takes of a node's amounts, by their numbers."""
        amounts = [
            (CPUS, task.cpus_milli),
            (MEMORY, task.memory_mb),
            (NICS, task.nics),
            (CPUS_LIMIT, max(task.cpus_limit_milli, task.cpus_milli)),
            (MEMORY_LIMIT, max(task.memory_limit_mb, task.memory_mb)),
        ]
        for tier, size_gb in task.storage_gb:
            number = self.capacity.amount_number.get(f"storage.{tier}")
            if number is not None:
                amounts.append((number, size_gb))
        return tuple((number, amount) for number, amount in amounts if amount)

    def healthy_room(self, task: Task, ask: Ask) -> int:
        """How many tasks the healthy nodes hold when nothing else runs. Worked out anew only when health changes."""
        open_nodes = self.capacity.open
        known = self._healthy_rooms.get(ask)
        if known is None or known[0] != open_nodes:
            known = self._healthy_rooms[ask] = (open_nodes, self._room_on(task, ask.eligible & open_nodes))
        return known[1]

    def ideal(self) -> Fit:
        """The predicates of the same cluster, idle and healthy."""
        if self._ideal is None:
            self._ideal = copy(self)
            self._ideal.capacity = Capacity(self.capacity.topology)
            self._ideal._healthy_rooms = {}
        return self._ideal

    def passing(self, ask: Ask) -> int:
        """Nodes that take one task as far as health, CPUs, memory, NICs and storage go."""
        capacity = self.capacity
        nodes = ask.eligible & capacity.open
        for number, amount in ask.needs:
            nodes &= capacity.amounts[number].at_least(amount)
        return nodes

    def counts(self, ask: Ask, within: int) -> tuple[tuple[str, int], ...]:
        """How many nodes each predicate rules out in turn, static ones first."""
        counted = list(ask.ruled_out)
        nodes = ask.eligible
        for name, passing in self._dynamic_predicates(ask, within):
            counted.append((name, (nodes & ~passing).bit_count()))
            nodes &= passing
        return tuple(pair for pair in counted if pair[1])

    def _dynamic_predicates(self, ask: Ask, within: int) -> Iterable[tuple[str, int]]:
        capacity = self.capacity
        if within != capacity.topology.everything:
            yield "outside", within
        for health in (Health.FAILED, Health.DRAINING, Health.SUSPECT, Health.SPARE):
            yield health.value, ~capacity.with_health[health]
        for number, amount in ask.needs:
            yield capacity.amounts[number].name, capacity.amounts[number].at_least(amount)
        if ask.gpus:
            yield "free_gpus", sum(capacity.with_free[ask.gpus :])


def most_on(portion: Portion | None, node: Node) -> int:
    """How many such portions a free device of a node holds."""
    return _most(portion, _mig_model(node), _memory_mb(node)) if portion is not None else 0


@lru_cache(maxsize=4096)
def _most(portion: Portion, model: str | None, memory_mb: int) -> int:
    if portion.revocable and portion.mode is Mode.FRACTION and not portion.memory_mb:
        # Of these there is no end: they have neither compute nor memory of their own.
        return TASKS_PER_NODE_MAX
    load = DeviceLoad(model, memory_mb)
    while (held := fit_portion(load, portion)) is not None:
        add(load, str(len(load.holders)), held)
    return len(load.holders)


def _mig_model(node: Node) -> str | None:
    return node.gpu_type if node.gpu_type in GEOMETRIES else None


def _memory_mb(node: Node) -> int:
    return int(node.gpu_memory_gb * MB_PER_GB)


def _device_memory_gb(task: Task) -> float:
    """What a device must have at least, as the task says of it or of its part of it."""
    part_mb = task.share.memory_mb if task.share is not None else None
    return max(task.gpu_memory_gb, (part_mb or 0) / MB_PER_GB)


def _tolerates(toleration: Toleration, taint: tuple[str, str, str]) -> bool:
    key, value, effect = taint
    return toleration.key in ("", key) and toleration.value in ("", value) and toleration.effect in ("", effect)
