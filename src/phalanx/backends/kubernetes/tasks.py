"""What a start comes to on Kubernetes: the pods of its tasks, worked out before anything is created."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from phalanx.backends.kubernetes.manifests import (
    CERTIFICATE,
    CHECKPOINTS,
    Gang,
    Owner,
    TaskPlan,
    address_of,
    image_of,
)
from phalanx.backends.kubernetes.nodes import Nodes
from phalanx.backends.kubernetes.settings import Settings
from phalanx.backends.local.environment import PASSED_ON, Surroundings, environment_of
from phalanx.backends.local.orders import CERTIFICATE as CERTIFICATE_VARIABLE
from phalanx.backends.local.orders import OrderError, Yard, tasks_by_role
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import Start
from phalanx.workload.job import Job

LOOPBACK = "127.0.0.1"
PORT = 29_500
FIRST_HOST_PORT, HOST_PORTS = 20_000, 10_000
"""Ports for rank 0 to listen on: in a network of its own the usual one, in that of its node one by its job's name."""

NOT_THERE = (
    "PHALANX_NOTICE_FILE",
    "PHALANX_GANG_FILE",
    "PHALANX_REST_FILE",
    "PHALANX_STEPS_PIPE",
    "PHALANX_SHARE_FILE",
)
"""Files that a shepherd beside the task would write."""


def gang_of(yard: Yard, owner: Owner, job: Job, placement: Placement) -> Gang:
    """What the pods of an attempt have in common."""
    if any(slot.portion is not None for slot in placement.slots):
        raise OrderError(f"job {job.id}: parts of GPUs are not run on Kubernetes; ask for whole ones")
    reporting = dict(yard.environment(job.id, owner.attempt))
    certificate = reporting.get(CERTIFICATE_VARIABLE, "")
    if certificate:
        reporting[CERTIFICATE_VARIABLE] = CERTIFICATE
    return Gang(
        owner,
        job,
        yard.identity(job),
        {**yard.secrets(job), **reporting},
        Path(certificate).read_text() if certificate else "",
        len(placement.slots) > 1,
    )


def plans_of(gang: Gang, start: Start, settings: Settings, nodes: Nodes, now: int) -> list[TaskPlan]:
    """Every task of a placement."""
    job, placement = gang.job, start.placement
    if not job.execution.command and not job.execution.image:
        raise OrderError(f"job {job.id}: there is nothing to run; give it a `command`")
    image_of(job, settings)
    around = _surroundings(gang, placement, settings, nodes.addresses(), now)
    tasks, resources = tasks_by_role(job.gang.roles), nodes.resources()
    return [
        TaskPlan(
            slot,
            tasks[slot.role],
            _variables(slot, placement, around, gang, resources.get(slot.node, "")),
            resources.get(slot.node, ""),
        )
        for slot in placement.slots
    ]


def _surroundings(
    gang: Gang, placement: Placement, settings: Settings, addresses: Mapping[str, str], now: int
) -> Surroundings:
    first, job = placement.slots[0], gang.job
    address, port = (address_of(gang.owner, first.rank, settings), PORT) if gang.meets else (LOOPBACK, PORT)
    if settings.host_network:
        port = FIRST_HOST_PORT + crc32(gang.owner.name.encode()) % HOST_PORTS
        address = addresses.get(first.node, first.node) if gang.meets else LOOPBACK
    return Surroundings(
        job=job,
        attempt=gang.owner.attempt,
        address=address,
        port=port,
        checkpoint_dir=CHECKPOINTS,
        notice_file="",
        gang_file="",
        deadline_ms=now + job.max_run_ms if job.max_run_ms is not None else None,
    )


def _variables(slot: Slot, placement: Placement, around: Surroundings, gang: Gang, resource: str) -> dict[str, str]:
    named = dict(gang.job.execution.env)
    env = {
        name: value
        for name, value in environment_of(slot, placement, around).items()
        if name not in NOT_THERE
        and name not in gang.secret
        # What a node or an image has of its own is not taken from this machine.
        and (name not in PASSED_ON or name in named or os.environ.get(name) != value)
    }
    return env | _devices(slot, env, resource)


def _devices(slot: Slot, env: dict[str, str], resource: str) -> dict[str, str]:
    """A task's GPUs are numbered from 0 in its container. Where the kubelet gives them out, it chooses which."""
    if slot.devices and resource:
        env.pop("PHALANX_DEVICES", None)
    visible = {"CUDA_VISIBLE_DEVICES": ",".join(str(number) for number in range(len(slot.devices)))}
    if not slot.devices:
        # An image may ask for all GPUs of its node by itself.
        return {**visible, "NVIDIA_VISIBLE_DEVICES": "void"}
    return visible if resource else {**visible, "NVIDIA_VISIBLE_DEVICES": ",".join(map(str, slot.devices))}
