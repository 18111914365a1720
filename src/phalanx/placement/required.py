"""Required topology: whether a placement lies together as its gang requires, worked out from the placement alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phalanx.cluster.cluster import CLUSTER, NODE
from phalanx.cluster.topology import Topology
from phalanx.placement.placement import Placement, Slot
from phalanx.workload.gang import Gang, Role


def meets_required(gang: Gang, placement: Placement, topology: Topology) -> bool:
    """Whether the gang, and each replica of a role that requires it, lies in one domain of its level."""
    return _group_meets(gang.roles, gang.topology.required, placement.slots, "", topology)


def _group_meets(roles: tuple[Role, ...], required: str, slots: Sequence[Slot], path: str, topology: Topology) -> bool:
    if not _lies_together(slots, required, topology):
        return False
    for role in roles:
        name = f"{path}/{role.name}" if path else role.name
        for replica in _replicas(role, slots, name):
            if not _group_meets(role.members, role.topology.required, replica, name, topology):
                return False
    return True


def _replicas(role: Role, slots: Sequence[Slot], path: str) -> Iterator[list[Slot]]:
    """The slots of each replica of a role: slots of one path come in the order of replicas."""
    sizes = dict(_sizes(role, path))
    by_path = {name: [slot for slot in slots if slot.role == name] for name in sizes}
    count = max((len(found) // sizes[name] for name, found in by_path.items()), default=0)
    for i in range(count):
        yield [slot for name, found in by_path.items() for slot in found[i * sizes[name] : (i + 1) * sizes[name]]]


def _sizes(role: Role, path: str) -> Iterator[tuple[str, int]]:
    """The paths of the tasks of one replica, and how many tasks each has."""
    if not role.members:
        yield path, 1
    for member in role.members:
        for name, count in _sizes(member, f"{path}/{member.name}"):
            yield name, count * member.replicas_max


def _lies_together(slots: Sequence[Slot], level: str, topology: Topology) -> bool:
    if level in ("", CLUSTER):
        return True
    nodes = dict.fromkeys(topology.number[slot.node] for slot in slots)
    if level in topology.domain_of:
        return len({topology.domain_of[level][node] for node in nodes}) <= 1
    if len(nodes) > 1:
        return False
    if level == NODE:
        return True
    devices = sum(1 << device for device in dict.fromkeys(device for slot in slots for device in slot.devices))
    return not devices or any(
        not devices & ~group for node in nodes for group in topology.layouts[node].levels.get(level, ())
    )
