"""A run whose decisions kube-scheduler carries out."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from phalanx.kube.api.client import Client
from phalanx.kube.extender.assigner import Assigner
from phalanx.kube.gangs.groups import group_of
from phalanx.kube.lease import Lease
from phalanx.kube.mirror import Mirror
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import demand_of
from phalanx.kube.reporter import Reporter
from phalanx.kube.run import Run
from phalanx.kube.scheduler import Scheduler
from phalanx.kube.settings import Settings

WAITS = "phalanx has not decided on it yet"


class Managed(Mirror):
    """Of the pods of kube-scheduler those that hold GPUs or start with others: it is asked for these alone."""

    def is_ours(self, pod: Pod) -> bool:
        """Whether phalanx decides on a pod."""
        if not super().is_ours(pod):
            return False
        try:
            return group_of(pod) is not None or demand_of(pod).gpus > 0
        except ValueError:
            return False


class Told(Reporter):
    """Keeps what pods wait for: kube-scheduler writes it on them."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.lines: dict[str, str] = {}

    def pending(self, pod: Pod, message: str) -> None:
        """The pod waits for this."""
        self.lines[pod.metadata.uid] = message

    def forget(self, uid: str) -> None:
        """The pod is gone, or runs."""
        self.lines.pop(uid, None)
        super().forget(uid)


class ExtenderRun(Run):
    """Decides as ever, and leaves it to kube-scheduler to bind."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        journal: BinaryIO | None = None,
        lease: Lease | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__(client, settings, journal, lease, say=say)
        self.binder.close()
        self._reporter.close()
        self.mirror = Managed(settings.scheduler, settings.preempt_others_below)
        self.mirror.queue_label = settings.queue_label
        self.assigner = Assigner(client, self._inbox.put, self._may, self.mirror)
        self.binder = self.assigner
        self.told = Told(client)
        self._reporter = self.told
        self.scheduler = Scheduler(self.mirror, self.binder, self.told, settings)

    def decides_on(self, pod: Pod) -> bool:
        """Whether a pod is one of those that phalanx decides on."""
        return self.mirror.is_ours(pod)

    def is_left_alone(self, key: str, uid: str) -> bool:
        """Whether a pod is one of kube-scheduler on which phalanx does not decide."""
        pod = self.mirror.pods.get(key)
        return (
            pod is not None
            and pod.metadata.uid == uid
            and pod.spec.scheduler_name == self.mirror.scheduler
            and not self.mirror.is_ours(pod)
        )

    def why(self, uid: str) -> str:
        """What a pod waits for."""
        return self.told.lines.get(uid, WAITS)

    def _turn(self) -> None:
        self.assigner.expire()
        super()._turn()
