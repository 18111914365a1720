"""The shape of a job as other platforms know it: so many nodes of one kind that all run the same."""

from __future__ import annotations

import re
from dataclasses import dataclass

from phalanx.cluster.catalogue import InstanceType, accelerator, instances
from phalanx.errors import PhalanxError
from phalanx.workload.job import Job, Kind


class PlatformError(PhalanxError):
    """A job that no other platform can run as it is asked for."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A job as nodes of one kind. `gpu` is the catalogue's name of its accelerator; `where` is the cloud and region
    that were chosen for it, as aws/eu-north-1.
    """

    job: Job
    nodes: int
    gpus: int
    gpu: str
    image: str
    bucket: str
    spot: bool
    where: str = ""

    @property
    def name(self) -> str:
        """A name that all platforms take: letters, digits and dashes, with a letter first."""
        text = re.sub("[^a-z0-9]+", "-", (self.job.name or self.job.id).lower()).strip("-")[:40].strip("-")
        return text if text[:1].isalpha() else f"job-{text}"

    @property
    def env(self) -> dict[str, str]:
        """Its environment."""
        return dict(self.job.execution.env)

    @property
    def max_run_s(self) -> int:
        """How long it may run: what it says, else twice its estimate, else a week."""
        ms = self.job.max_run_ms or 2 * (self.job.duration_ms or 0) or 7 * 86_400_000
        return -(-ms // 1000)

    def instance(self, cloud: str) -> InstanceType | None:
        """The smallest instance type of a cloud that has its GPUs."""
        fitting = [each for each in instances() if each.cloud == cloud and each.accelerator == self.gpu]
        enough = [each for each in fitting if each.count >= self.gpus]
        return min(enough, key=lambda each: (each.count, each.on_demand_usd_h.value), default=None)


def shape_of(job: Job, gpu: str, image: str, bucket: str, spot: bool) -> Shape:
    """The shape of a job; one with tasks of several kinds, or no command, is refused."""
    roles = job.gang.roles
    if len(roles) != 1 or roles[0].members:
        raise PlatformError(f"job {job.name}: has roles of several kinds: other platforms run nodes of one kind")
    if job.kind is not Kind.TRAINING:
        raise PlatformError(
            f"job {job.name}: is a {job.kind.value}: only training jobs are written for other platforms"
        )
    if not job.execution.command:
        raise PlatformError(f"job {job.name}: there is nothing to run: give it a `command`")
    task = roles[0].task
    if task.share is not None or not task.gpus:
        raise PlatformError(f"job {job.name}: asks for no whole GPUs: other platforms give out whole GPUs only")
    name = accelerator(task.gpu_types[0] if task.gpu_types else gpu).name
    return Shape(job, roles[0].replicas_min, task.gpus, name, image or job.execution.image, bucket, spot)
