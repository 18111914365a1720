"""Volumes, claims to them, and the classes of storage that they are made of."""

from __future__ import annotations

from phalanx.kube.objects.meta import Stored, Wire
from phalanx.kube.objects.pod import NodeSelector, Selector

SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""The annotation by which a scheduler tells the provisioner of a claim for which node a volume is needed."""

NO_PROVISIONER = "kubernetes.io/no-provisioner"


class ClaimSpec(Wire, frozen=True):
    """What a claim asks for, and the volume that it has."""

    volume_name: str = ""
    storage_class_name: str = ""


class ClaimStatus(Wire, frozen=True):
    """How far a claim has come."""

    phase: str = ""


class VolumeClaim(Stored, frozen=True):
    """A persistent volume claim."""

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def is_bound(self) -> bool:
        """Whether it has its volume."""
        return bool(self.spec.volume_name) and self.status.phase == "Bound"


class VolumeNodeAffinity(Wire, frozen=True):
    """From which nodes a volume can be reached."""

    required: NodeSelector | None = None


class VolumeSpec(Wire, frozen=True):
    """Where a volume is."""

    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolume(Stored, frozen=True):
    """A persistent volume."""

    spec: VolumeSpec = VolumeSpec()


class TopologyTerm(Wire, frozen=True):
    """Labels of nodes for which volumes can be made."""

    match_label_expressions: list[Selector] | None = None


class StorageClass(Stored, frozen=True):
    """How volumes are made. One that waits makes them when it is known for which node."""

    provisioner: str = ""
    volume_binding_mode: str = ""
    allowed_topologies: list[TopologyTerm] | None = None

    @property
    def waits(self) -> bool:
        """Whether a volume is made once a pod has a node."""
        return self.volume_binding_mode == "WaitForFirstConsumer"
