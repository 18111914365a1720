"""Pods with when their containers ended, which only those need that look back."""

from __future__ import annotations

from phalanx.kube.objects.meta import Condition, Wire
from phalanx.kube.objects.pod import Pod, PodStatus


class Terminated(Wire, frozen=True):
    """How a container ended."""

    finished_at: str | None = None
    exit_code: int = 0


class ContainerState(Wire, frozen=True):
    """How a container is."""

    terminated: Terminated | None = None


class ContainerStatus(Wire, frozen=True):
    """One container."""

    state: ContainerState = ContainerState()


class EndedStatus(PodStatus, frozen=True):
    """How far a pod has come, with its containers."""

    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None


class SeenPod(Pod, frozen=True):
    """A pod as one sees it who looks on."""

    status: EndedStatus = EndedStatus()

    @property
    def finished_at(self) -> str:
        """When the last of its containers ended; empty while one runs, and where that is not said."""
        ends = [each.state.terminated for each in self.status.container_statuses or ()]
        return max((end.finished_at or "" for end in ends if end is not None), default="") if all(ends) else ""
