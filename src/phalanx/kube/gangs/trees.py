"""Trees: PodGroups below CompositePodGroups, which start together as those say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from phalanx.kube.gangs.groups import COMPOSITE, GroupRef, Groups, group_of, topology_of
from phalanx.kube.gangs.sub_groups import Division, Placed, Unit
from phalanx.kube.objects.composite import CompositePodGroup
from phalanx.kube.objects.group import PodGroup, PodGroupSpec
from phalanx.kube.objects.pod import Pod

DEPTH_MAX = 4


class Tree(NamedTuple):
    """A group with those below it, of which as many as `least` start together; of one without any, so many pods."""

    name: str
    least: int
    topology: str = ""
    children: tuple[Tree, ...] = ()

    @property
    def pods(self) -> int:
        """The fewest pods that start together."""
        if not self.children:
            return self.least
        return sum(sorted(each.pods for each in self.children)[: self.least])


class GroupOfGroups(PodGroup, frozen=True):
    """A group of groups as one group; or a group that lies in such groups, and `waits_for` what is wrong with these."""

    tree: Tree | None = None
    waits_for: str = ""

    @property
    def says(self) -> object:
        """Its tree, too."""
        return self.spec, self.tree, self.waits_for


class Hierarchy:
    """The CompositePodGroups that there are, and which groups lie in which."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._composites: dict[GroupRef, CompositePodGroup] = {}
        self._below: dict[GroupRef, dict[GroupRef, None]] = {}

    def all(self) -> list[CompositePodGroup]:
        """Those that there are."""
        return list(self._composites.values())

    def put(self, it: CompositePodGroup, gone: bool) -> GroupRef:
        """Takes in one, and says which it is."""
        ref = GroupRef(COMPOSITE, it.metadata.namespace, it.metadata.name)
        self.lie(ref, it.spec.parent_composite_pod_group_name, gone)
        if gone:
            self._composites.pop(ref, None)
        else:
            self._composites[ref] = it
        return ref

    def lie(self, ref: GroupRef, parent: str, gone: bool) -> None:
        """Takes note of the one that a group lies in, if it is in any."""
        if not parent:
            return
        around = GroupRef(COMPOSITE, ref.namespace, parent)
        if not gone:
            self._below.setdefault(around, {})[ref] = None
        elif self._below.get(around, {}).pop(ref, ref) is None and not self._below[around]:
            del self._below[around]

    def family(self, ref: GroupRef) -> GroupRef:
        """The outermost gang that a group is of."""
        return self._root(ref)[0]

    def leaves(self, ref: GroupRef, depth: int = 1) -> Iterator[GroupRef]:
        """The PodGroups below a group of groups, or it itself."""
        if ref.dialect != COMPOSITE:
            yield ref
        elif depth < DEPTH_MAX:
            for each in self._below.get(ref, ()):
                yield from self.leaves(each, depth + 1)

    def group(self, ref: GroupRef) -> PodGroup | None:
        """A group of groups, or one that lies in others, as one group; None if it is not there."""
        if ref.dialect != COMPOSITE:
            group = self._groups.get(ref)
            wrong = self._root(ref)[1]
            return GroupOfGroups(group.metadata, group.spec, waits_for=wrong) if group is not None and wrong else group
        root = self._composites.get(ref)
        if root is None:
            return None
        tree = self._tree(ref)
        spec = PodGroupSpec(
            min_member=tree.pods,
            priority=root.spec.priority,
            priority_class_name=root.spec.priority_class_name,
            scheduling_constraints=root.spec.scheduling_constraints,
        )
        return GroupOfGroups(root.metadata, spec, tree=tree, waits_for=refusal_of(tree))

    def _around(self, ref: GroupRef) -> GroupRef | None:
        it = self._composites.get(ref) if ref.dialect == COMPOSITE else self._groups.get(ref)
        name = it.spec.parent_composite_pod_group_name if it is not None else ""
        return GroupRef(COMPOSITE, ref.namespace, name) if name else None

    def _root(self, ref: GroupRef) -> tuple[GroupRef, str]:
        """The outermost gang of a group; and what is wrong with the groups around it, where it is of none of them."""
        root, at, depth = ref, ref, 1
        while (around := self._around(at)) is not None:
            at, depth = around, depth + 1
            it = self._composites.get(at)
            if it is None:
                return ref, f"{at} is not there yet"
            if depth > DEPTH_MAX:
                return ref, f"it lies in more than {DEPTH_MAX - 1} groups of groups, or in itself"
            if it.spec.scheduling_policy.gang is not None:
                root = at
            elif it.topology:
                return ref, f"phalanx does not look at spec.schedulingConstraints of {at}, which is no gang"
        return root, ""

    def _tree(self, ref: GroupRef, depth: int = 1) -> Tree:
        if ref.dialect != COMPOSITE:
            group = self._groups[ref]
            return Tree(ref.name, max(group.least, 1), topology_of(group))
        it = self._composites[ref]
        gang = it.spec.scheduling_policy.gang
        below = sorted(self._below.get(ref, ())) if depth < DEPTH_MAX else []
        children = tuple(self._tree(each, depth + 1) for each in below)
        return Tree(ref.name, gang.min_group_count if gang is not None else 1, it.topology, children)


class Look(NamedTuple):
    """What there is of a group: whether it runs, the units by which it can start, or else what it waits for."""

    is_running: bool
    units: tuple[Unit, ...] = ()
    more: tuple[Unit, ...] = ()
    lacks: str = ""


def divide_tree(tree: Tree, ready: Sequence[Pod], placed: Placed) -> Division:
    """Divides pending pods of a tree, given the oldest first. All units that are no `is_more` start together."""
    pending: dict[str, list[Pod]] = {}
    for pod in ready:
        pending.setdefault(_leaf(pod), []).append(pod)
    nodes: dict[str, list[str]] = {}
    for pod, node in placed.pods:
        nodes.setdefault(_leaf(pod), []).append(node)
    look = _look(tree, pending, nodes, placed, "")
    units = (*look.units, *look.more)
    taken = {pod.metadata.key: None for unit in units for pod in unit.pods}
    line = look.lacks or "it starts after the groups beside it"
    return Division(units, tuple((pod, line) for pod in ready if pod.metadata.key not in taken))


def _look(
    tree: Tree, pending: Mapping[str, list[Pod]], nodes: Mapping[str, list[str]], placed: Placed, level: str
) -> Look:
    if not tree.children:
        return _look_at_leaf(tree, pending.get(tree.name, []), nodes.get(tree.name, []), placed, level)
    looks = [_look(each, pending, nodes, placed, each.topology) for each in tree.children]
    running = sum(look.is_running for look in looks)
    more = tuple(unit for look in looks for unit in look.more)
    can_start = sorted((look for look in looks if look.units), key=lambda look: _age(look.units))
    if running >= tree.least:
        return Look(True, (), (*more, *(unit._replace(is_more=True) for look in can_start for unit in look.units)))
    if running + len(can_start) >= tree.least:
        units = tuple(unit for look in can_start[: tree.least - running] for unit in look.units)
        return Look(False, units, more)
    lacks = next((look.lacks for look in looks if look.lacks), "")
    line = f"{tree.least} groups of {tree.name} start together, and {running + len(can_start)} can"
    return Look(False, (), more, f"{line}: {lacks}" if lacks else line)


def _look_at_leaf(tree: Tree, pods: list[Pod], nodes: list[str], placed: Placed, level: str) -> Look:
    near = ((level, placed.labels_of(nodes[0]).get(level, "")),) if nodes and level else ()
    needed = tree.least - len(nodes)
    if needed <= 0:
        return Look(True, (), tuple(Unit((pod,), 0, level, near, is_more=True) for pod in pods))
    if len(pods) < needed:
        there = len(pods) + len(nodes)
        return Look(False, lacks=f"{tree.least} pods of PodGroup {tree.name} start together, and {there} are there")
    return Look(False, (Unit(tuple(pods[:needed]), 0, level, near),))


def _age(units: Iterable[Unit]) -> tuple[str, str]:
    return min((pod.metadata.creation_timestamp, pod.metadata.name) for unit in units for pod in unit.pods)


def _leaf(pod: Pod) -> str:
    group = group_of(pod)
    return group.name if group is not None else ""


def refusal_of(tree: Tree) -> str:
    """What of a tree phalanx does not look at; empty if it does all."""
    for each in tree.children:
        if each.children and (each.topology or any(below.children and below.topology for below in each.children)):
            return (
                f"phalanx does not look at spec.schedulingConstraints of CompositePodGroup {each.name} in {tree.name}"
            )
        if line := refusal_of(each):
            return line
    return ""
