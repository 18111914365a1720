"""How a cluster of Kubernetes is scheduled."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.kube.nodes import TOPOLOGY_LABELS


@dataclass(frozen=True, slots=True)
class Settings:
    """Pods of other schedulers may be evicted if their priority is below `preempt_others_below`; none may if it is
    None. `queue_label` is the label by which pods name a queue, if any is.
    """

    scheduler: str = "phalanx"
    policy: str = "phalanx"
    topology: tuple[str, ...] = TOPOLOGY_LABELS
    preempt_others_below: int | None = None
    queue_label: str = ""
