"""What suspends a RayCluster: itself, or the RayJob that made it."""

from __future__ import annotations

from phalanx.kube.objects.meta import Condition, Stored, Wire


class SuspendableSpec(Wire, frozen=True):
    """Whether it is to be suspended. KubeRay suspends no RayJob that keeps its cluster when it is over."""

    suspend: bool = False
    shutdown_after_job_finishes: bool = False


class SuspendableStatus(Wire, frozen=True):
    """How far KubeRay is: a RayJob says so in one word, a RayCluster in conditions."""

    job_deployment_status: str = ""
    state: str = ""
    conditions: list[Condition] | None = None


class Suspendable(Stored, frozen=True):
    """A RayCluster or a RayJob."""

    spec: SuspendableSpec = SuspendableSpec()
    status: SuspendableStatus = SuspendableStatus()

    @property
    def is_suspending(self) -> bool:
        """Whether KubeRay has begun: from then on it ends all pods, whatever is asked of it meanwhile."""
        status = self.status
        words = {status.job_deployment_status, status.state.capitalize()}
        words |= {each.type.removeprefix("RayCluster") for each in status.conditions or () if each.status == "True"}
        return bool(words & {"Suspending", "Suspended"})


class SuspendableList(Wire, frozen=True):
    """All of one of these kinds."""

    items: list[Suspendable] | None = None
