"""What can be done on a Kubernetes cluster, and why not the rest."""

from __future__ import annotations

from phalanx.backends.capability import Capability, Offer

SUMMARY = "Jobs as pods of a Kubernetes cluster: each task is a pod on the node of its placement."

WHOLE = "GPUs are given to pods as a whole"

LACKS = {
    Capability.RESIZE: "no pod could be told of members that join and leave; only a new attempt has another size",
    Capability.SUSPEND: "Kubernetes freezes no pod",
    Capability.SUSPEND_FREES_MEMORY: "Kubernetes freezes no pod",
    Capability.EXEC: "use `kubectl exec` on the pod of the task",
    Capability.PROBE: "the tasks of a service are not restarted one by one; a task that ends, ends the attempt",
    Capability.TURNS: WHOLE,
    Capability.FRACTION: WHOLE,
    Capability.MPS: WHOLE,
    Capability.MIG: WHOLE,
}


def kubernetes_offer() -> Offer:
    """The same on every cluster."""
    return Offer("kubernetes", SUMMARY, dict(LACKS))
