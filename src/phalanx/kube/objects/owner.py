"""Owners of pods that start together: Jobs, JobSets and LeaderWorkerSets."""

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
