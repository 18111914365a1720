"""The annotation by which a pod says what it wants of HiveD."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from phalanx.cluster.formats.hived import CELLS_MAX, CONFIG_LIMITS, LEAVES_MAX, optional
from phalanx.document import Field, read_document

ANNOTATION = "hivedscheduler.microsoft.com/pod-scheduling-spec"

PRIORITY_MIN, PRIORITY_MAX = -1, 1000
POD_KEYS = (
    "virtualCluster",
    "priority",
    "pinnedCellId",
    "leafCellType",
    "leafCellNumber",
    "gangReleaseEnable",
    "lazyPreemptionEnable",
    "ignoreK8sSuggestedNodes",
    "affinityGroup",
    "quota",
    "version",
)
# Names of HiveD before 0.3, which it still reads.
OLD_POD_KEYS = {"gpuType": "leafCellType", "gpuNumber": "leafCellNumber", "reservationId": "pinnedCellId"}

_A = TypeVar("_A")

Members = tuple[tuple[int, int], ...]
"""Pods, and the leaves of each."""


@dataclass(frozen=True, slots=True)
class PodSpec:
    """What one pod asks of HiveD, and of which group it is; members are pairs of pods and leaves of each."""

    virtual_cluster: str
    leaves: int
    group: str
    members: Members
    priority: int = 0
    leaf_type: str = ""
    pinned_id: str = ""
    lazy_preemption: bool = False
    ignores_suggestions: bool = True
    quota: tuple[str, int] | None = None


def read_annotation(text: str, source: str, pod: str) -> PodSpec:
    """The value of the pod-scheduling-spec annotation of a pod."""
    return read_pod(read_document(text, source, CONFIG_LIMITS), pod)


def read_pod(field: Field, pod: str) -> PodSpec:
    """A pod-scheduling-spec. A pod that names no group is a group of its own, named like the pod."""
    fields = field.mapping((*POD_KEYS, *OLD_POD_KEYS))
    given = {OLD_POD_KEYS.get(key, key): value for key, value in fields.items()}

    def get(key: str, read: Callable[[Field], _A], default: _A) -> _A:
        return read(given[key]) if key in given else default

    if "leafCellNumber" not in given:
        raise field.error("the key 'leafCellNumber' is missing")
    leaves = _count(given["leafCellNumber"])
    no_group: tuple[str, Members] = pod, ((1, leaves),)
    group, members = get("affinityGroup", lambda given: _read_group(given) or no_group, no_group)
    if leaves not in [size for _, size in members]:
        sizes = ", ".join(f"{pods} × {size}" for pods, size in members)
        raise field.error(
            f"the members of group '{group}' ({sizes}) have no pod of {leaves} leaves, which this one asks for"
        )
    cluster = get("virtualCluster", optional, "")
    if not cluster:
        raise field.error("virtualCluster is empty")
    return PodSpec(
        cluster,
        leaves,
        group,
        members,
        get("priority", lambda priority: priority.integer(PRIORITY_MIN, PRIORITY_MAX), 0),
        get("leafCellType", optional, ""),
        get("pinnedCellId", optional, ""),
        get("lazyPreemptionEnable", Field.boolean, False),
        get("ignoreK8sSuggestedNodes", Field.boolean, True),
        get("quota", _read_quota, None),
    )


def _read_quota(field: Field) -> tuple[str, int] | None:
    """A tag and the most leaves for all groups that carry it; no tag, or a negative count, is no quota."""
    fields = field.mapping(("tag", "count"))
    tag = fields.get("tag", optional, "")
    count = fields.get("count", lambda count: count.integer(-1, LEAVES_MAX), 0)
    return (tag, count) if tag and count >= 0 else None


def _read_group(field: Field) -> tuple[str, Members] | None:
    if not field.is_mapping and not field.is_list and not optional(field):
        return None
    fields = field.mapping(("name", "members"))
    members: list[tuple[int, int]] = []
    for item in fields.need("members", lambda members: members.items(1, CELLS_MAX)):
        parts = item.mapping(("podNumber", "leafCellNumber", "gpuNumber"))
        size = "gpuNumber" if "gpuNumber" in parts else "leafCellNumber"
        members.append((parts.need("podNumber", _count), parts.need(size, _count)))
    # As in HiveD, members of one size are one, and their order means nothing.
    pods: dict[int, int] = {}
    for count, leaves in members:
        pods[leaves] = pods.get(leaves, 0) + count
    return fields.need("name", Field.title), tuple((pods[leaves], leaves) for leaves in sorted(pods))


def _count(field: Field) -> int:
    return field.integer(1, LEAVES_MAX)
