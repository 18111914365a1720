"""Jobs of Kubeflow's operators for training: PyTorchJob, MPIJob and their like."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.kube.objects.group import PodGroupSpec
from phalanx.kube.objects.meta import Stored, Wire

LAUNCHER = "launcher"


class ReplicaSpec(Wire, frozen=True):
    """How many pods of one type there are."""

    replicas: int | None = None


class SchedulingPolicy(Wire, frozen=True):
    """What a job says for schedulers of gangs."""

    min_available: int | None = None
    queue: str = ""
    priority_class: str = ""


class RunPolicy(Wire, frozen=True):
    """How a job runs."""

    scheduling_policy: SchedulingPolicy | None = None


class ElasticPolicy(Wire, frozen=True):
    """How few workers a job does with."""

    min_replicas: int | None = None


Replicas = Mapping[str, ReplicaSpec]


class KubeflowJobSpec(Wire, frozen=True):
    """The pods of a job, by their type, under a key of its kind."""

    pytorch_replica_specs: dict[str, ReplicaSpec] | None = None
    tf_replica_specs: dict[str, ReplicaSpec] | None = None
    mpi_replica_specs: dict[str, ReplicaSpec] | None = None
    xgb_replica_specs: dict[str, ReplicaSpec] | None = None
    paddle_replica_specs: dict[str, ReplicaSpec] | None = None
    jax_replica_specs: dict[str, ReplicaSpec] | None = None
    run_policy: RunPolicy = RunPolicy()
    elastic_policy: ElasticPolicy | None = None

    @property
    def replicas(self) -> Replicas:
        """Those of its kind, but for the launcher, which starts by itself."""
        found = (
            self.pytorch_replica_specs
            or self.tf_replica_specs
            or self.mpi_replica_specs
            or self.xgb_replica_specs
            or self.paddle_replica_specs
            or self.jax_replica_specs
            or {}
        )
        return {name: each for name, each in found.items() if name.lower() != LAUNCHER}


class KubeflowJob(Stored, frozen=True):
    """A job of any of these kinds."""

    spec: KubeflowJobSpec = KubeflowJobSpec()

    @property
    def asks(self) -> PodGroupSpec:
        """How many of its pods start together, in which queue and with which priority."""
        policy = self.spec.run_policy.scheduling_policy or SchedulingPolicy()
        return PodGroupSpec(
            min_member=self._least(policy), queue=policy.queue, priority_class_name=policy.priority_class
        )

    def _least(self, policy: SchedulingPolicy) -> int:
        replicas = self.spec.replicas
        wanted = {name: 1 if each.replicas is None else each.replicas for name, each in replicas.items()}
        total = sum(wanted.values())
        if policy.min_available is not None:
            # A launcher may be counted in it.
            return min(policy.min_available, total)
        elastic, workers = self.spec.elastic_policy, wanted.get("Worker", 0)
        if elastic is not None and elastic.min_replicas is not None:
            return total - workers + min(workers, elastic.min_replicas)
        return total
