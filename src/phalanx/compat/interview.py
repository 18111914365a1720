"""The interview question "GPU Cluster Scheduler", answered by the real engine.

`ClusterTopology`, `GPU`, `Job` and `GPUClusterScheduler` have the names, defaults and return shapes of the question. A
job becomes a gang of pipeline × data tasks of one tensor-parallel group each, is placed by `decide`, and is moved by
the same events that a failing GPU causes in a live cluster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from phalanx.cluster.cluster import CLUSTER, NODE, Cluster, Health, Link, Node
from phalanx.engine.event import ClusterDefined, DeviceHealthChanged, Done, Event, JobCancelled, JobSubmitted
from phalanx.engine.journal import Journal
from phalanx.engine.state import State
from phalanx.engine.turn import record, turn
from phalanx.placement.cost import seed_cost
from phalanx.placement.mesh import inside_out
from phalanx.placement.ranks import fabric_of
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Job as EngineJob
from phalanx.workload.parallel import ParallelPlan, Traffic

Placement = dict[str, list[list[int]]]


@dataclass
class GPU:
    """One GPU of the cluster."""

    gpu_id: int
    node_id: int
    memory_gb: int = 80
    memory_used_gb: float = 0.0
    is_healthy: bool = True


@dataclass
class ClusterTopology:
    """Equal nodes of equal GPUs; bandwidths in GB/s."""

    num_nodes: int
    gpus_per_node: int = 8
    intra_node_bw_gbps: float = 600.0
    inter_node_bw_gbps: float = 50.0


@dataclass
class Job:
    """A model-parallel job."""

    job_id: str
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    memory_per_gpu_gb: float
    hidden_dim: int = 4096
    seq_len: int = 2048
    micro_batch_size: int = 1
    num_params_billions: float = 70.0
    dtype_bytes: int = 2


class GPUClusterScheduler:
    """Places model-parallel jobs. `gpus` lists every GPU by its id, `placements` every placed job's groups."""

    def __init__(self, topology: ClusterTopology) -> None:
        _require_positive("num_nodes", topology.num_nodes)
        _require_positive("gpus_per_node", topology.gpus_per_node)
        for name in ("intra_node_bw_gbps", "inter_node_bw_gbps"):
            if not 0 < getattr(topology, name) < math.inf:
                raise ValueError(f"{name} must be a positive number of GB/s, got {getattr(topology, name)!r}")
        self.topology = topology
        per_node = topology.gpus_per_node
        self.gpus = [GPU(i, i // per_node) for i in range(topology.num_nodes * per_node)]
        self.placements: dict[str, Placement] = {}
        self._jobs: dict[str, Job] = {}
        self._engine_ids: dict[str, str] = {}
        self._submitted = 0
        self._state = State()
        self._journal = Journal()
        cluster = Cluster(
            tuple(
                Node(f"node{n}", (), per_node, gpu_memory_gb=self.gpus[0].memory_gb) for n in range(topology.num_nodes)
            ),
            links={NODE: Link(topology.intra_node_bw_gbps), CLUSTER: Link(topology.inter_node_bw_gbps)},
        )
        record(self._state, self._journal, ClusterDefined(cluster, "fifo:skip=true"), 0)

    def bandwidth_between(self, gpu_a: int, gpu_b: int) -> float:
        """GB/s between two GPUs; infinite from a GPU to itself."""
        first, second = self._gpu(gpu_a), self._gpu(gpu_b)
        if first is second:
            return math.inf
        if first.node_id == second.node_id:
            return self.topology.intra_node_bw_gbps
        return self.topology.inter_node_bw_gbps

    def place_job(self, job: Job) -> Placement | None:
        """Gives the job its GPUs, each TP group inside one node; None, with nothing allocated, if it cannot."""
        _check(job)
        if job.job_id in self.placements:
            raise ValueError(f"job {job.job_id!r} is placed already")
        barred = self._bar_unfit(job)
        name = f"{job.job_id}#{self._submitted}"
        self._submitted += 1
        self._turn([JobSubmitted(self._engine_job(job, name))])
        if not self._is_placed(name):
            self._turn([JobCancelled(name)])
        self._turn([DeviceHealthChanged(*self._device(gpu), Health.HEALTHY) for gpu in barred])
        if not self._is_placed(name):
            return None
        self._jobs[job.job_id] = job
        self._engine_ids[job.job_id] = name
        self.placements[job.job_id] = self._groups(job)
        self._use(job, job.memory_per_gpu_gb)
        return self.placements[job.job_id]

    def estimate_communication_cost(self, job: Job, placement: Placement) -> dict[str, Any]:
        """Milliseconds per training step for each dimension by the simplified model, and which is the largest."""
        plan, traffic = _check(job)
        ids = [gpu for group in placement["tp_groups"] for gpu in group]
        if len(ids) != plan.world_size:
            raise ValueError(
                f"job {job.job_id!r} has {plan.world_size} GPUs, but the placement's tp_groups hold {len(ids)}"
            )
        paths = [(self._gpu(gpu).node_id, gpu) for gpu in ids]
        cost = seed_cost(plan, traffic, paths, fabric_of(self._state.topology))
        return {
            "tp_time_ms": cost.tp_ms,
            "pp_time_ms": cost.pp_ms,
            "dp_time_ms": cost.dp_ms,
            "total_ms": cost.total_ms,
            "bottleneck": cost.bottleneck,
        }

    def handle_gpu_failure(self, failed_gpu_id: int) -> list[dict[str, Any]]:
        """Takes a GPU out for good. Its job is placed anew under all its constraints, or killed."""
        gpu = self._gpu(failed_gpu_id)
        if not gpu.is_healthy:
            return []
        gpu.is_healthy = False
        affected = [job for job, groups in self.placements.items() if _uses(groups, failed_gpu_id)]
        self._turn([DeviceHealthChanged(*self._device(gpu), Health.FAILED, "reported as failed")])
        return [self._moved(self._jobs[job]) for job in affected]

    def find_checkpointable_boundary(self, job: Job) -> int:
        """The stage in the middle of the pipeline: from there recovery recomputes least."""
        _check(job)
        return job.pipeline_parallel_size // 2

    def _moved(self, job: Job) -> dict[str, Any]:
        """What became of a job whose GPU failed; the engine has already tried to place it anew."""
        name = self._engine_ids[job.job_id]
        old = self.placements.pop(job.job_id)
        for gpu in _members(old):
            self.gpus[gpu].memory_used_gb -= job.memory_per_gpu_gb
        if not self._is_placed(name):
            self._turn([JobCancelled(name)])
            del self._jobs[job.job_id], self._engine_ids[job.job_id]
            return {"job_id": job.job_id, "action": "killed", "old_placement": old, "new_placement": None}
        new = self.placements[job.job_id] = self._groups(job)
        self._use(job, job.memory_per_gpu_gb)
        return {"job_id": job.job_id, "action": "rescheduled", "old_placement": old, "new_placement": new}

    def _turn(self, events: list[Event]) -> None:
        """Takes turns until nothing is left to do; what is asked for happens at once."""
        while events:
            plan = turn(self._state, self._journal, events, 0)
            events = [Done(action.id) for action in plan.actions]

    def _bar_unfit(self, job: Job) -> list[GPU]:
        """Bars idle GPUs that are in use by somebody the scheduler does not know of, for as long as this job is placed.

        Callers may set a GPU's memory in use or health themselves.
        """
        held = {gpu: True for groups in self.placements.values() for gpu in _members(groups)}
        barred = []
        for gpu in self.gpus:
            full = gpu.memory_used_gb + job.memory_per_gpu_gb > gpu.memory_gb
            if gpu.gpu_id not in held and (full or not gpu.is_healthy):
                self._turn([DeviceHealthChanged(*self._device(gpu), Health.SUSPECT)])
                if gpu.is_healthy:
                    barred.append(gpu)
        return barred

    def _engine_job(self, job: Job, name: str) -> EngineJob:
        plan, traffic = _check(job)
        task = Task(gpus=plan.tp, gpu_memory_gb=job.memory_per_gpu_gb)
        role = Role("group", plan.group_count, plan.group_count, task)
        return EngineJob(name, Gang((role,)), parallel=plan, traffic=traffic)

    def _is_placed(self, name: str) -> bool:
        return self._state.record(name).attempt is not None

    def _groups(self, job: Job) -> Placement:
        attempt = self._state.record(self._engine_ids[job.job_id]).attempt
        assert attempt is not None
        plan, _ = _check(job)
        number, per_node = self._state.topology.number, self.topology.gpus_per_node
        devices = sorted((number[slot.node], device) for slot in attempt.placement.slots for device in slot.devices)
        # The question wants pipeline stages together before data replicas, whatever a step would cost.
        order = inside_out(devices, plan, fabric_of(self._state.topology), tp_within=1)
        assert order is not None, "every task of the gang is one TP group on one node"
        ids = [devices[i][0] * per_node + devices[i][1] for i in order]
        return {
            "tp_groups": plan.tp_groups(ids),
            "pp_stages": plan.pp_stages(ids),
            "dp_replicas": plan.dp_replicas(ids),
        }

    def _use(self, job: Job, memory_gb: float) -> None:
        for gpu in _members(self.placements[job.job_id]):
            self.gpus[gpu].memory_used_gb += memory_gb

    def _gpu(self, gpu_id: int) -> GPU:
        if isinstance(gpu_id, bool) or not isinstance(gpu_id, int) or not 0 <= gpu_id < len(self.gpus):
            raise ValueError(f"there is no GPU {gpu_id!r}; this cluster has 0 to {len(self.gpus) - 1}")
        return self.gpus[gpu_id]

    def _device(self, gpu: GPU) -> tuple[str, int]:
        return f"node{gpu.node_id}", gpu.gpu_id % self.topology.gpus_per_node


def _check(job: Job) -> tuple[ParallelPlan, Traffic]:
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        _require_positive(f"job {job.job_id!r}: {name}", getattr(job, name))
    if not 0 <= job.memory_per_gpu_gb < math.inf:
        raise ValueError(f"job {job.job_id!r}: memory_per_gpu_gb must be 0 or more, got {job.memory_per_gpu_gb!r}")
    plan = ParallelPlan(job.tensor_parallel_size, job.pipeline_parallel_size, job.data_parallel_size)
    traffic = Traffic(job.hidden_dim, job.seq_len, job.micro_batch_size, job.num_params_billions, job.dtype_bytes)
    return plan, traffic


def _require_positive(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def _members(groups: Placement) -> list[int]:
    return [gpu for group in groups["tp_groups"] for gpu in group]


def _uses(groups: Placement, gpu_id: int) -> bool:
    return gpu_id in _members(groups)
