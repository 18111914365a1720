"""The onlooker: a mirror that minds all pods which hold GPUs or start with others, whatever schedules them."""

from __future__ import annotations

import msgspec

from phalanx.kube.gangs.groups import group_of
from phalanx.kube.mirror import MIRROR_POD, Mirror
from phalanx.kube.nodes import PRODUCT_LABELS, gpu_resource
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import demand_of


class Onlooker(Mirror):
    """What there is, as it was recorded."""

    def __init__(self) -> None:
        super().__init__("")

    def _put_node(self, node: KubeNode, gone: bool) -> None:
        super()._put_node(_named(node), gone)

    def is_ours(self, pod: Pod) -> bool:
        """Whether it is work: those of DaemonSets and the system only use what is left for work."""
        metadata = pod.metadata
        if MIRROR_POD in (metadata.annotations or {}) or any(
            owner.kind in ("DaemonSet", "Node") for owner in metadata.owner_references or ()
        ):
            return False
        if group_of(pod) is not None:
            return True
        try:
            return demand_of(pod).gpus > 0
        except ValueError:
            return False


def _named(node: KubeNode) -> KubeNode:
    """A node whose GPUs have a name that a cluster file can have: where no label says what they are, their resource."""
    resource, labels = gpu_resource(node), node.metadata.labels or {}
    if not resource or any(label in labels for label in PRODUCT_LABELS):
        return node
    labels = {**labels, PRODUCT_LABELS[0]: resource.replace("/", "-")}
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels))
