"""What is put down for the nodes of an attempt before Slurm hears of it: an order each, and files to print to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace

from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.host.unix_user import task_ids
from phalanx.backends.local.orders import OrderError, Yard
from phalanx.backends.slurm.node_agent import node_folder
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import Start
from phalanx.workload.job import Job

OPEN, CLOSED = 0o711, 0o700


@dataclass(frozen=True, slots=True)
class NodeYard(Yard):
    """A yard whose attempts have a folder for one node, where the shepherd of that node puts down what it does."""

    node: str = ""

    def folder(self, job: str, attempt: int) -> AttemptFolder:
        """The folder of an attempt on the node."""
        whole = Yard.folder(self, job, attempt)
        return node_folder(whole.path, self.node) if self.node else whole

    def slots_of(self, placement: Placement) -> tuple[Slot, ...]:
        """The tasks on the node."""
        return tuple(slot for slot in placement.slots if slot.node == self.node)


def write_orders(yard: NodeYard, start: Start, job: Job, addresses: Mapping[str, str], now: int) -> None:
    """Makes the folders of an attempt and writes what each node is to run."""
    if job.execution.image:
        raise OrderError(f"job {job.id}: images are not run on Slurm; start the container in the `command`")
    ids = task_ids(yard.identity(job))
    whole = yard.folder(job.id, start.id.attempt).path
    _make(f"{whole}/nodes", OPEN if ids else CLOSED)
    for path in (yard.data, yard.data / "jobs", yard.data / "jobs" / job.id, whole):
        if ids:
            os.chmod(path, os.stat(path).st_mode | 0o111)
    for folder in (str(yard.data / "jobs" / job.id / "work"), str(yard.data / "checkpoints" / job.id)):
        _make(folder, CLOSED, ids)
    if ids and yard.is_at_home_here(job):
        _make(str(yard.home(job)), CLOSED, ids)
    _touch(f"{whole}/slurm.out", ids)
    address = addresses.get(start.placement.slots[0].node, start.placement.slots[0].node)
    for node in start.placement.nodes:
        _write_order(replace(yard, node=node), start, job, address, now)


def _write_order(yard: NodeYard, start: Start, job: Job, address: str, now: int) -> None:
    folder, ids = yard.folder(job.id, start.id.attempt), task_ids(yard.identity(job))
    order = yard.order(start, job, now)
    order["user"] = []
    for task in order["tasks"]:
        # The whole allocation runs as that user.
        task["user"] = []
        for name in ("MASTER_ADDR", "PET_MASTER_ADDR"):
            task["env"][name] = address
    folder.make()
    for path in (folder.path, f"{folder.path}/shared"):
        _make(path, CLOSED, ids)
    certificate = yard.certificate_for(job.id, start.id.attempt)
    if certificate:
        shutil.copyfile(certificate, folder.certificate_path)
        os.chmod(folder.certificate_path, 0o644)
    folder.write_order(order)
    order["tasks"] = []
    replace(yard, node="").folder(job.id, start.id.attempt).write_order(order)
    if ids:
        os.chown(folder.order_path, ids[0], ids[1], follow_symlinks=False)


def _make(path: str, mode: int, ids: list[int] | None = None) -> None:
    os.makedirs(path, exist_ok=True)
    os.chmod(path, mode)
    if ids:
        os.chown(path, ids[0], ids[1], follow_symlinks=False)


def _touch(path: str, ids: list[int]) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    if ids:
        os.chown(path, ids[0], ids[1], follow_symlinks=False)
