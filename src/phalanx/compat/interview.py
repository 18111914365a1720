"""The interview question "GPU Cluster Scheduler", answered by the real engine.

`ClusterTopology`, `GPU`, `Job` and `GPUClusterScheduler` have the names, defaults and return shapes of the question. A
job becomes a gang of pipeline × data tasks of one tensor-parallel group each, is placed by `decide`, and is moved by
the same events that a failing GPU causes in a live cluster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeGuard

from phalanx.cluster.cluster import CLUSTER, NODE, Cluster, Health, Link, Node
from phalanx.cluster.formats.limits import GPUS_MAX, GPUS_PER_NODE_MAX, NODES_MAX
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, turn
from phalanx.placement.cost import seed_cost
from phalanx.placement.mesh import inside_out
from phalanx.placement.ranks import fabric_of
from phalanx.protocol.event import ClusterDefined, DeviceHealthChanged, Done, Event, JobCancelled, JobSubmitted
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Job as EngineJob
from phalanx.workload.parallel import ParallelPlan, Traffic

Placement = dict[str, list[list[int]]]

TP_GROUPS, PP_STAGES, DP_REPLICAS = "tp_groups", "pp_stages", "dp_replicas"


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
    """Places model-parallel jobs. `gpus` lists every GPU by its id, `placements` every placed job's groups.

    Memory in use, memory and health of a GPU may be set by hand: the next job that is placed or moved minds them.
    """

    def __init__(self, topology: ClusterTopology) -> None:
        _require_positive("num_nodes", topology.num_nodes)
        _require_positive("gpus_per_node", topology.gpus_per_node)
        if topology.num_nodes > NODES_MAX or topology.gpus_per_node > GPUS_PER_NODE_MAX:
            raise ValueError(
                f"expected at most {NODES_MAX} nodes of at most {GPUS_PER_NODE_MAX} GPUs, got {topology.num_nodes} of "
                f"{topology.gpus_per_node}"
            )
        if topology.num_nodes * topology.gpus_per_node > GPUS_MAX:
            raise ValueError(f"expected at most {GPUS_MAX} GPUs, got {topology.num_nodes * topology.gpus_per_node}")
        for name in ("intra_node_bw_gbps", "inter_node_bw_gbps"):
            speed = getattr(topology, name)
            if isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 < speed < math.inf:
                raise ValueError(f"{name} must be a positive number of GB/s, got {speed!r}")
        self.topology = topology
        per_node = topology.gpus_per_node
        self.gpus = [GPU(i, i // per_node) for i in range(topology.num_nodes * per_node)]
        self._placed: dict[str, Placement] = {}
        self._jobs: dict[str, Job] = {}
        self._engine_ids: dict[str, str] = {}
        self._barred: dict[int, bool] = {}
        self._memory: dict[int, tuple[float, float]] = {}
        self._submitted = 0
        self._state = State()
        self._journal = Journal()
        cluster = Cluster(
            tuple(Node(f"node{n}", (), per_node) for n in range(topology.num_nodes)),
            links={NODE: Link(topology.intra_node_bw_gbps), CLUSTER: Link(topology.inter_node_bw_gbps)},
        )
        record(self._state, self._journal, ClusterDefined(cluster, "fifo:skip=true"), 0)

    @property
    def placements(self) -> dict[str, Placement]:
        """The groups of every placed job; what a caller does to them changes nothing here."""
        return {job: _copy(groups) for job, groups in self._placed.items()}

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
        if job.job_id in self._placed:
            raise ValueError(f"job {job.job_id!r} is placed already")
        self._bar_unfit(job)
        name = f"{job.job_id}#{self._submitted}"
        self._submitted += 1
        self._turn([JobSubmitted(self._engine_job(job, name))])
        if not self._is_placed(name):
            self._turn([JobCancelled(name)])
            return None
        # A copy: what becomes of the caller's job later must not change what is given back when this one ends.
        self._jobs[job.job_id] = replace(job)
        self._engine_ids[job.job_id] = name
        return _copy(self._settle(job))

    def estimate_communication_cost(self, job: Job, placement: Placement) -> dict[str, Any]:
        """Milliseconds per training step for each dimension by the simplified model, and which is the largest.

        The placement may be any that gives every TP group of the job its stage and its replica.
        """
        plan, traffic = _check(job)
        ids = _in_rank_order(job.job_id, plan, placement)
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
        """Takes a GPU out until a caller sets it healthy. Its job is placed anew under all constraints, or killed."""
        gpu = self._gpu(failed_gpu_id)
        gpu.is_healthy = False
        affected = [self._jobs[job] for job, groups in self._placed.items() if failed_gpu_id in _members(groups)]
        for job in affected:
            self._bar_unfit(job)
        self._barred[failed_gpu_id] = True
        self._turn([DeviceHealthChanged(*self._device(gpu), Health.FAILED, "reported as failed")])
        return [self._moved(job) for job in affected]

    def find_checkpointable_boundary(self, job: Job) -> int:
        """The stage in the middle of the pipeline: from there recovery recomputes least."""
        _check(job)
        return job.pipeline_parallel_size // 2

    def _moved(self, job: Job) -> dict[str, Any]:
        """What became of a job whose GPU failed; the engine has already tried to place it anew."""
        name = self._engine_ids[job.job_id]
        old = self._placed.pop(job.job_id)
        for gpu in _members(old):
            self.gpus[gpu].memory_used_gb = self._used_without(job, self.gpus[gpu])
            self._memory.pop(gpu, None)
        if not self._is_placed(name):
            self._turn([JobCancelled(name)])
            del self._jobs[job.job_id], self._engine_ids[job.job_id]
            return {"job_id": job.job_id, "action": "killed", "old_placement": old, "new_placement": None}
        new = _copy(self._settle(job))
        return {"job_id": job.job_id, "action": "rescheduled", "old_placement": old, "new_placement": new}

    def _settle(self, job: Job) -> Placement:
        """Notes where the engine has put a job, and the memory it uses there."""
        groups = self._placed[job.job_id] = self._groups(job)
        for gpu in _members(groups):
            before_gb = self.gpus[gpu].memory_used_gb
            self.gpus[gpu].memory_used_gb += job.memory_per_gpu_gb
            self._memory[gpu] = (before_gb, self.gpus[gpu].memory_used_gb)
        return groups

    def _used_without(self, job: Job, gpu: GPU) -> float:
        """The memory in use on a GPU of a job beside the job: as it was before, unless a caller has changed it since.

        Taking away what was added would leave a rest: 30.3 + 10 - 10 is not 30.3.
        """
        before_gb, after_gb = self._memory[gpu.gpu_id]
        return before_gb if gpu.memory_used_gb == after_gb else gpu.memory_used_gb - job.memory_per_gpu_gb

    def _turn(self, events: list[Event]) -> None:
        """Takes turns until nothing is left to do; what is asked for happens at once."""
        while events:
            plan = turn(self._state, self._journal, events, 0)
            events = [Done(action.id) for action in plan.actions]

    def _bar_unfit(self, job: Job) -> None:
        """Bars the GPUs that the job could not use if it were placed now, and no more.

        The engine knows which GPUs are taken; memory and health are as the GPUs say, which callers may change.
        """
        own = dict.fromkeys(_members(self._placed[job.job_id])) if job.job_id in self._placed else {}
        others = {gpu: True for name, groups in self._placed.items() if name != job.job_id for gpu in _members(groups)}
        events: list[Event] = []
        for gpu in self.gpus:
            used_gb = self._used_without(job, gpu) if gpu.gpu_id in own else gpu.memory_used_gb
            unfit = not gpu.is_healthy or used_gb + job.memory_per_gpu_gb > gpu.memory_gb
            if gpu.gpu_id not in others and unfit != self._barred.get(gpu.gpu_id, False):
                self._barred[gpu.gpu_id] = unfit
                events.append(DeviceHealthChanged(*self._device(gpu), Health.SUSPECT if unfit else Health.HEALTHY))
        self._turn(events)

    def _engine_job(self, job: Job, name: str) -> EngineJob:
        plan, traffic = _check(job)
        role = Role("group", plan.group_count, plan.group_count, Task(gpus=plan.tp))
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
        whole, torn = _whole_replicas(devices, plan)
        if torn:
            part = replace(plan, dp=len(torn) // (plan.tp * plan.pp))
            order = inside_out(torn, part, fabric_of(self._state.topology), tp_within=1)
            assert order is not None, "every task of the gang is one TP group on one node"
            whole += [torn[i] for i in order]
        ids = [node * per_node + device for node, device in whole]
        return {
            TP_GROUPS: plan.tp_groups(ids),
            PP_STAGES: plan.pp_stages(ids),
            DP_REPLICAS: plan.dp_replicas(ids),
        }

    def _gpu(self, gpu_id: int) -> GPU:
        if isinstance(gpu_id, bool) or not isinstance(gpu_id, int) or not 0 <= gpu_id < len(self.gpus):
            raise ValueError(f"there is no GPU {gpu_id!r}; this cluster has 0 to {len(self.gpus) - 1}")
        return self.gpus[gpu_id]

    def _device(self, gpu: GPU) -> tuple[str, int]:
        return f"node{gpu.node_id}", gpu.gpu_id % self.topology.gpus_per_node


def _check(job: Job) -> tuple[ParallelPlan, Traffic]:
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        _require_positive(f"job {job.job_id!r}: {name}", getattr(job, name))
    memory_gb = job.memory_per_gpu_gb
    if isinstance(memory_gb, bool) or not isinstance(memory_gb, int | float) or not 0 <= memory_gb < math.inf:
        raise ValueError(f"job {job.job_id!r}: memory_per_gpu_gb must be 0 or more, got {job.memory_per_gpu_gb!r}")
    plan = ParallelPlan(job.tensor_parallel_size, job.pipeline_parallel_size, job.data_parallel_size)
    traffic = Traffic(job.hidden_dim, job.seq_len, job.micro_batch_size, job.num_params_billions, job.dtype_bytes)
    return plan, traffic


def _require_positive(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def _whole_replicas(
    devices: list[tuple[int, int]], plan: ParallelPlan
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Devices by node that make replicas which lie on one node each, as many as can be, and the rest."""
    size = plan.tp * plan.pp
    whole: list[tuple[int, int]] = []
    torn: list[tuple[int, int]] = []
    for _, group in groupby(devices, key=lambda device: device[0]):
        here = list(group)
        kept = len(here) - len(here) % size
        whole += here[:kept]
        torn += here[kept:]
    return whole, torn


def _members(groups: Placement) -> list[int]:
    return [gpu for group in groups[TP_GROUPS] for gpu in group]


def _copy(groups: Placement) -> Placement:
    return {kind: [list(group) for group in each] for kind, each in groups.items()}


def _in_rank_order(job: str, plan: ParallelPlan, placement: Placement) -> list[int]:
    """The GPUs of a placement in the plan's rank order: replica by replica, in each stage by stage."""
    groups = _groups_of(job, placement, TP_GROUPS, plan.group_count, plan.tp)
    stage_of = _place_in(_groups_of(job, placement, PP_STAGES, plan.pp, plan.tp * plan.dp))
    replica_of = _place_in(_groups_of(job, placement, DP_REPLICAS, plan.dp, plan.tp * plan.pp))
    found: dict[tuple[int, int], list[int]] = {}
    for group in groups:
        seats = list(dict.fromkeys((replica_of.get(gpu, -1), stage_of.get(gpu, -1)) for gpu in group))
        if len(seats) > 1 or min(seats[0]) < 0:
            raise ValueError(
                f"job {job!r}: the TP group {group} is not inside one of the {PP_STAGES} and one of the {DP_REPLICAS}"
            )
        if seats[0] in found:
            raise ValueError(f"job {job!r}: the TP groups {found[seats[0]]} and {group} have one stage and one replica")
        found[seats[0]] = group
    return [gpu for seat in sorted(found) for gpu in found[seat]]


def _groups_of(job: str, placement: object, kind: str, count: int, size: int) -> list[list[int]]:
    """One kind of groups of a placement from outside, after a look at its shape."""
    groups = placement.get(kind) if isinstance(placement, Mapping) else None
    shape = f"a list of {count} lists of {size} GPU ids each, none of them twice"
    if not _are_lists(groups) or [len(group) for group in groups] != [size] * count:
        raise ValueError(f"job {job!r}: the placement's {kind} must be {shape}, got {groups!r}")
    ids = [gpu for group in groups for gpu in group]
    if not all(isinstance(gpu, int) for gpu in ids) or len(dict.fromkeys(ids)) != len(ids):
        raise ValueError(f"job {job!r}: the placement's {kind} must be {shape}, got {groups!r}")
    return [list(group) for group in groups]


def _are_lists(groups: object) -> TypeGuard[list[list[int]]]:
    return isinstance(groups, list | tuple) and all(isinstance(group, list | tuple) for group in groups)


def _place_in(groups: list[list[int]]) -> dict[int, int]:
    return {gpu: number for number, group in enumerate(groups) for gpu in group}
