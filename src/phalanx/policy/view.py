"""What a policy sees: read-only views that the engine implements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from phalanx.cluster.device import Portion
from phalanx.cluster.queues import Queue
from phalanx.workload.job import Job


class Usage(NamedTuple):
    """What a job or queue holds or has claimed, or what there is."""

    gpu_permille: int = 0
    cpus_milli: int = 0
    memory_mb: int = 0


class NodeView(NamedTuple):
    """A node as a policy sees it: its GPUs that take work, those that are free, and the GPUs of each job on it."""

    name: str
    gpus: int
    free: int
    jobs: Mapping[str, int]


class Place(NamedTuple):
    """Nodes on which a gang is tried, by name, and those with GPUs of `gpu_types`; all, if neither is named.

    Tasks that share devices get devices of their own there; with `crowded` they join others, on the device with the
    fewest, and if it is None they go where the device is fullest, as they do where no place is named.
    """

    nodes: tuple[str, ...] = ()
    crowded: bool | None = False
    gpu_types: tuple[str, ...] = ()


WHEREVER = Place(crowded=None)
"""As where no place is named: several tasks of a gang that ask for parts of devices may lie on one."""


class Adjustment(NamedTuple):
    """What is to be different of the shares of a job that runs; None is as it is.

    On devices that are taken in turns `beside` is the job with which it shares its turn, or empty: none.
    `compute_permille` is the most that revocable shares may have; at 0 the job is suspended until it may have more.
    `lent_mb` is what they may use of a device's memory; what of theirs does not fit in there goes to the host.
    """

    beside: str | None = None
    compute_permille: int | None = None
    lent_mb: int | None = None


class Moment(Protocol):
    """The cluster at a moment."""

    @property
    def now(self) -> int:
        """The moment, in milliseconds."""

    @property
    def memory(self) -> Mapping[str, Any]:
        """What the policy remembers."""

    @property
    def total(self) -> Usage:
        """What the cluster has."""

    @property
    def free_gpus(self) -> int:
        """Free GPUs on nodes that take work."""

    def nodes(self) -> tuple[NodeView, ...]:
        """The nodes that take work, and the jobs there. It is worked out anew each time: not for every job."""

    def job(self, name: str) -> JobView:
        """A job that was submitted."""

    def sharing(self, job: str) -> tuple[Mapping[str, Portion], ...]:
        """The jobs that run on each device that a job has a share of, with what each has there; the job itself too."""

    def usage(self, queue: str) -> Usage:
        """What the jobs of a queue, and of those inside it, have now."""

    def queues(self) -> tuple[str, ...]:
        """The queues that jobs can be or were submitted to, in the order of the file or of their first job."""

    def queue(self, path: str) -> Queue | None:
        """What is allotted to a queue, or to the whole (the empty path); None where the cluster describes none."""

    def inside(self, path: str) -> tuple[str, ...]:
        """The queues that lie in one, or at the top (the empty path), where the cluster describes queues."""

    def spent_gpu_ms(self, path: str) -> float:
        """GPU time that a queue and those inside it have had, decayed; kept for policies with `half_life_ms`."""


class JobView(Protocol):
    """A job as a policy sees it, waiting or running."""

    @property
    def job(self) -> Job:
        """What was submitted."""

    @property
    def submitted_ms(self) -> int:
        """When."""

    @property
    def number(self) -> int:
        """Its place among all submissions."""

    @property
    def gpus(self) -> int:
        """GPUs it holds; those it asks for while it waits."""

    @property
    def has_devices(self) -> bool:
        """Whether it holds devices or has a claim on some."""

    @property
    def overdue(self) -> bool:
        """Whether it goes before all others: it has waited longer than its `max_wait`, or the patience of its queue."""

    @property
    def opened(self) -> tuple[int, int]:
        """When it last got devices, and its place among all jobs that ever did."""

    @property
    def first_start_ms(self) -> int | None:
        """When it first ran; None if it never did."""

    @property
    def running_since_ms(self) -> int | None:
        """Since when all its tasks run; None if they do not."""

    @property
    def stopped_ms(self) -> int | None:
        """When its last attempt ended; None if it never had one."""

    @property
    def preemptions(self) -> int:
        """How often it was stopped for another."""

    @property
    def executed_before_ms(self) -> int:
        """How long earlier attempts ran."""

    @property
    def service_before_gpu_ms(self) -> int:
        """GPUs times milliseconds of earlier attempts."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The members that its roles are to have, as `sizes` last said; empty if that said nothing of it."""

    @property
    def marks(self) -> dict[str, int]:
        """What the policy remembers of this job. Written only by `due`."""

    @property
    def saves(self) -> bool:
        """Whether it saves its work: it was submitted as one that does, or has told of what it saved since it runs."""

    @property
    def suspends(self) -> bool:
        """Whether it can be suspended for another job, so that nothing of its work is lost."""

    def executed_ms(self, now: int) -> int:
        """How long it has run, over all attempts."""

    def service_gpu_ms(self, now: int) -> int:
        """GPUs times milliseconds it has had, over all attempts."""


class RunView(Protocol):
    """A running attempt as a policy sees it."""

    @property
    def job(self) -> Job:
        """What was submitted."""

    @property
    def gpus(self) -> int:
        """GPUs it holds."""

    @property
    def started_ms(self) -> int:
        """When it started."""
