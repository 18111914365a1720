"""Volumes: which claims a pod has, what it waits for before it can have a node, and which nodes reach its volumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod
from phalanx.kube.objects.volume import NO_PROVISIONER, PersistentVolume, StorageClass, VolumeClaim
from phalanx.kube.pods.selection import meets

UNREACHABLE = "the node affinity of its volumes"
NOT_MADE = "the allowed topologies of its storage class"


def claims_of(pod: Pod) -> Iterator[str]:
    """The keys of the claims of a pod. A claim that is made for it has its name."""
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}"
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.namespace}/{pod.metadata.name}-{volume.name}"


@dataclass(frozen=True, slots=True)
class Volumes:
    """Claims by key, volumes and classes of storage by name."""

    claims: Mapping[str, VolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)

    def lack(self, pod: Pod) -> str:
        """What a pod waits for before it can have a node; empty if nothing."""
        for key in claims_of(pod):
            claim = self.claims.get(key)
            if claim is None:
                return f"its persistent volume claim {key} is not there"
            if claim.is_bound:
                if claim.spec.volume_name not in self.volumes:
                    return f"the volume {claim.spec.volume_name} of its claim {key} is not there"
                continue
            storage = self.classes.get(claim.spec.storage_class_name)
            if storage is None or not storage.waits:
                return f"its persistent volume claim {key} is not bound yet, and does not wait for a node"
            if storage.provisioner == NO_PROVISIONER:
                return (
                    f"its persistent volume claim {key} is of the storage class {storage.metadata.name}, which makes "
                    "no volumes: phalanx does not choose among volumes yet; bind it to one by its spec.volumeName"
                )
        return ""

    def refusal(self, pod: Pod, node: KubeNode) -> str:
        """What of its volumes keeps a pod off a node; empty if nothing does."""
        for key in claims_of(pod):
            claim = self.claims.get(key)
            if claim is None:
                continue
            if claim.is_bound and not self._is_reached(claim, node):
                return UNREACHABLE
            if not claim.is_bound and not self._is_made_for(claim, node):
                return NOT_MADE
        return ""

    def unbound(self, pod: Pod) -> list[str]:
        """The claims of a pod that have no volume yet."""
        return [key for key in claims_of(pod) if key in self.claims and not self.claims[key].is_bound]

    def _is_reached(self, claim: VolumeClaim, node: KubeNode) -> bool:
        volume = self.volumes.get(claim.spec.volume_name)
        affinity = volume.spec.node_affinity if volume is not None else None
        return affinity is None or affinity.required is None or meets(affinity.required, node)

    def _is_made_for(self, claim: VolumeClaim, node: KubeNode) -> bool:
        storage = self.classes.get(claim.spec.storage_class_name)
        terms = storage.allowed_topologies if storage is not None else None
        labels = node.metadata.labels or {}
        return not terms or any(
            # An expression of a storage class has values and no operator.
            all(labels.get(each.key) in (each.values or ()) for each in term.match_label_expressions or ())
            for term in terms
        )
