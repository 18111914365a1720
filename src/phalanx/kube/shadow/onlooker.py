"""The onlooker: a mirror that minds all pods which hold GPUs or start with others, whatever schedules them."""

from __future__ import annotations

from phalanx.kube.gangs.groups import group_of
from phalanx.kube.mirror import MIRROR_POD, Mirror
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import demand_of


class Onlooker(Mirror):
    """What there is, as it was recorded."""

    def __init__(self) -> None:
        super().__init__("")

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
