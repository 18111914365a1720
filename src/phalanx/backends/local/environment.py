"""A task's environment: torch's rendezvous, what phalanx promises every job, and the devices it may see."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.cluster.device import Mode, Portion
from phalanx.placement.placement import Placement, Slot
from phalanx.placement.ranks import plan_for
from phalanx.workload.job import Job

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "USER", "LOGNAME", "SHELL", "TMPDIR")
"""All a job gets of the server's own environment: the rest may hold secrets."""

ENGINE_SETTINGS = ("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF", "XDG_RUNTIME_DIR")
"""Further variables of the server's that container engines look at."""

COORDINATES = ("PHALANX_TP_RANK", "PHALANX_PP_RANK", "PHALANX_DP_RANK")
"""Where the devices of a task are in the parallel plan, one number for each of them."""

LAUNCHER_GRACE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
"""The seconds that `torchrun` leaves its workers after a notice: else it kills them after 30, whatever their grace."""

UNBUFFERED = "PYTHONUNBUFFERED"
"""Has Python print at once: into a file it would keep what it prints back until there are 8 kB."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all tasks of one attempt have in common. `device_names` are what a node's devices are called by CUDA; those
    of a simulated node have no name, and are numbered from `first_simulated`, which no real device has.
    """

    job: Job
    attempt: int
    address: str
    port: int
    checkpoint_dir: str
    notice_file: str
    gang_file: str
    rest_file: str = ""
    steps_pipe: str = ""
    share_file: str = ""
    deadline_ms: int | None = None
    device_names: Mapping[str, Sequence[str]] | None = None
    extra: Mapping[str, str] | None = None
    first_simulated: int = 0


def environment_of(slot: Slot, placement: Placement, around: Surroundings) -> dict[str, str]:
    """All variables of one task. Those of the job file come before ours only where ours are not promises."""
    return {
        **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
        LAUNCHER_GRACE: str(-(-around.job.grace_ms // 1000)),
        UNBUFFERED: "1",
        **dict(around.job.execution.env),
        **_rendezvous(slot, placement, around),
        **_promised(slot, placement, around),
        **_devices(slot, around),
        **(around.extra or {}),
    }


def engine_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a container engine: the server's, and of the task's only what tells which task it is. A job
    must not choose which program or library an engine is that may be root.
    """
    ours = {name: os.environ[name] for name in (*PASSED_ON, *ENGINE_SETTINGS) if name in os.environ}
    marks = {name: value for name, value in env.items() if name.startswith("PHALANX_") or name == "MASTER_PORT"}
    return marks | ours


def _rendezvous(slot: Slot, placement: Placement, around: Surroundings) -> dict[str, str]:
    """torch.distributed's env:// and, for a torchrun inside the task, its PET_ variables: a task is one node to it.

    A task sees only its own devices, so each is local rank 0 of its own surroundings.
    """
    place, world = _place_of(slot, placement), len(placement.slots)
    roles = Counter(each.role for each in placement.slots)
    role_rank = sum(1 for each in placement.slots[:place] if each.role == slot.role)
    address, port = around.address, str(around.port)
    restarts = str(around.attempt - 1)
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "RANK": str(place),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(place),
        "GROUP_WORLD_SIZE": str(world),
        "ROLE_NAME": slot.role,
        "ROLE_RANK": str(role_rank),
        "ROLE_WORLD_SIZE": str(roles[slot.role]),
        "TORCHELASTIC_RESTART_COUNT": restarts,
        "TORCHELASTIC_RUN_ID": f"{around.job.id}.{around.attempt}",
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_NNODES": str(world),
        "PET_NODE_RANK": str(place),
        "PET_NPROC_PER_NODE": str(max(len(slot.devices), 1)),
    }


def _place_of(slot: Slot, placement: Placement) -> int:
    """Where a task stands among those there are: after a shrink ranks may have gaps, torch's may not."""
    return placement.slots.index(slot)


def _promised(slot: Slot, placement: Placement, around: Surroundings) -> dict[str, str]:
    job = around.job
    promised = {
        "PHALANX_JOB_ID": job.id,
        "PHALANX_JOB_NAME": job.name,
        "PHALANX_ATTEMPT": str(around.attempt),
        "PHALANX_RANK": str(slot.rank),
        "PHALANX_ROLE": slot.role,
        "PHALANX_NODE": slot.node,
        "PHALANX_WORLD_SIZE": str(len(placement.slots)),
        "PHALANX_RESTART_COUNT": str(around.attempt - 1),
        "PHALANX_CHECKPOINT_DIR": around.checkpoint_dir,
        "PHALANX_NOTICE_FILE": around.notice_file,
        "PHALANX_GANG_FILE": around.gang_file,
        "PHALANX_REST_FILE": around.rest_file,
        "PHALANX_STEPS_PIPE": around.steps_pipe,
        "PHALANX_GRACE_MS": str(job.grace_ms),
    }
    if around.deadline_ms is not None:
        promised["PHALANX_DEADLINE"] = str(around.deadline_ms // 1000)
    if job.array is not None and job.array_of:
        promised["PHALANX_ARRAY_JOB_ID"] = job.array_of
        promised["PHALANX_ARRAY_INDEX"] = str(job.array.indices[0])
    return promised | _parallel(slot, placement, job)


def _parallel(slot: Slot, placement: Placement, job: Job) -> dict[str, str]:
    """The plan at the size that the job has, and the coordinates of the task's devices in it."""
    plan = plan_for(job, placement.gpus) or job.parallel
    if plan is None:
        return {}
    told = {"PHALANX_PARALLEL": f"tp={plan.tp},pp={plan.pp},dp={plan.dp}"}
    if placement.mesh and slot.devices:
        ranks = [placement.mesh.index((slot.node, device)) for device in slot.devices]
        coordinates = zip(*(plan.coordinates(rank) for rank in ranks), strict=True)
        told |= {name: ",".join(map(str, each)) for name, each in zip(COORDINATES, coordinates, strict=True)}
    return told


def _devices(slot: Slot, around: Surroundings) -> dict[str, str]:
    names = (around.device_names or {}).get(slot.node, ())
    # The number of a simulated device does for a program that only counts; CUDA finds no device of that number.
    visible = ",".join(
        names[device] if device < len(names) else str(around.first_simulated + device) for device in slot.devices
    )
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": visible,
        "PHALANX_DEVICES": ",".join(map(str, slot.devices)),
        **(_portion(slot.portion, around) if slot.portion is not None else {}),
    }


def _portion(portion: Portion, around: Surroundings) -> dict[str, str]:
    """What keeps a task to its part of a device, where the driver does, and else tells it that part."""
    told = {
        "PHALANX_GPU_PERMILLE": str(portion.compute_permille),
        "PHALANX_GPU_MEMORY_MB": str(portion.memory_mb),
        "PHALANX_SHARE_FILE": around.share_file,
    }
    if portion.mode is Mode.MPS:
        told["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(max(portion.compute_permille // 10, 1))
        told["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={portion.memory_mb}MB"
    if portion.mig_profile is not None:
        told["PHALANX_MIG_PROFILE"] = portion.mig_profile
    return told
