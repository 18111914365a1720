"""Owners of pods that start together: Jobs, JobSets, LeaderWorkerSets and RayClusters."""

from __future__ import annotations

from phalanx.kube.objects.meta import Stored, Wire


class BatchJobSpec(Wire, frozen=True):
    """How many pods a Job has at a time, and in all."""

    parallelism: int = 1
    completions: int | None = None


class BatchJob(Stored, frozen=True):
    """A Job."""

    spec: BatchJobSpec = BatchJobSpec()

    @property
    def least(self) -> int:
        """How many pods it has at first."""
        spec = self.spec
        return spec.parallelism if spec.completions is None else min(spec.parallelism, spec.completions)


class JobTemplate(Wire, frozen=True):
    """What each Job of a JobSet is like."""

    spec: BatchJobSpec = BatchJobSpec()


class ReplicatedJob(Wire, frozen=True):
    """Jobs of a JobSet that are alike."""

    replicas: int = 1
    template: JobTemplate = JobTemplate()
    depends_on: list[dict[str, str]] | None = None


class StartupPolicy(Wire, frozen=True):
    """Whether Jobs of a JobSet are made one after the other."""

    startup_policy_order: str = ""


class JobSetSpec(Wire, frozen=True):
    """The Jobs of a JobSet."""

    replicated_jobs: list[ReplicatedJob] | None = None
    startup_policy: StartupPolicy | None = None


class JobSet(Stored, frozen=True):
    """A JobSet."""

    spec: JobSetSpec = JobSetSpec()

    @property
    def least(self) -> int:
        """How many pods it has at first; 0 if some are made only after others run, so that none can wait for all."""
        jobs, policy = self.spec.replicated_jobs or (), self.spec.startup_policy
        if any(each.depends_on for each in jobs) or (policy is not None and policy.startup_policy_order == "InOrder"):
            return 0
        return sum(each.replicas * BatchJob(spec=each.template.spec).least for each in jobs)


class LeaderWorkerSetSpec(Wire, frozen=True):
    """When the workers of a group are made."""

    startup_policy: str = ""


class LeaderWorkerSet(Stored, frozen=True):
    """A LeaderWorkerSet."""

    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


class WorkerGroup(Wire, frozen=True):
    """Workers of a RayCluster that are alike. Each replica is as many pods as it has hosts."""

    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int = 1
    suspend: bool = False

    @property
    def least(self) -> int:
        """How many pods it never goes below."""
        return 0 if self.suspend else (self.min_replicas or 0) * self.num_of_hosts

    @property
    def wanted(self) -> int:
        """How many pods its operator makes."""
        if self.suspend:
            return 0
        replicas = max(self.replicas or 0, self.min_replicas or 0)
        return (replicas if self.max_replicas is None else min(replicas, self.max_replicas)) * self.num_of_hosts


class RayClusterSpec(Wire, frozen=True):
    """The workers of a RayCluster beside its head, and whether Ray itself asks for more and fewer of them."""

    worker_group_specs: list[WorkerGroup] | None = None
    enable_in_tree_autoscaling: bool = False


class RayCluster(Stored, frozen=True):
    """A RayCluster."""

    spec: RayClusterSpec = RayClusterSpec()

    @property
    def least(self) -> int:
        """How many pods start together: the head and all workers, or the fewest where Ray scales them by itself."""
        groups, scales = self.spec.worker_group_specs or (), self.spec.enable_in_tree_autoscaling
        return 1 + sum(group.least if scales else group.wanted for group in groups)
