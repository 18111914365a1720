"""Orders: what a Start or Resize comes to on this machine, worked out before anything is begun."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.backends.local import papers
from phalanx.backends.local.cgroup import NOWHERE
from phalanx.backends.local.container import Contained, Limits, contain
from phalanx.backends.local.environment import Surroundings, environment_of
from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.mps import mps_variables
from phalanx.backends.local.papers import Grounds, Order, Share, TaskOrder
from phalanx.backends.local.unix_user import home_of, user_ids
from phalanx.backends.registry import TURN_MS, no_variables, same_user
from phalanx.cluster.device import Mode
from phalanx.engine.action import Start
from phalanx.errors import PhalanxError
from phalanx.placement.placement import Placement, Slot
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job, Kind, Probe, ProbeKind

ADDRESS = "127.0.0.1"


class OrderError(PhalanxError):
    """A job that cannot be run here, whatever happens."""


@dataclass(frozen=True, slots=True)
class Yard:
    """Where and how attempts run here. `data` holds the folders of all jobs; `environment` gives further variables of
    an attempt, such as where it reports its progress; `unix_user` names the user a job's tasks run as; who takes a
    device in turns runs for `turn_ms` before the next.
    """

    data: Path
    environment: Callable[[str, int], Mapping[str, str]] = no_variables
    unix_user: Callable[[Job], str] = same_user
    device_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    pens: Grounds = field(default_factory=NOWHERE.copy)
    turn_ms: int = TURN_MS

    def folder(self, job: str, attempt: int) -> AttemptFolder:
        """The folder of an attempt."""
        if not job or "/" in job or job.startswith("."):
            raise OrderError(f"job {job!r}: an id with '/' or a leading '.' cannot name a folder")
        return AttemptFolder(str(self.data / "jobs" / job / str(attempt)))

    def order(self, start: Start, job: Job, now: int) -> Order:
        """What a start comes to."""
        attempt = start.id.attempt
        return Order(
            job=job.id,
            attempt=attempt,
            term=start.id.term,
            seq=start.id.seq,
            grace_ms=job.grace_ms,
            service=job.kind is Kind.SERVICE,
            probe=_probe_of(job.execution.probe),
            idle_ms=job.execution.idle_timeout_ms or 0,
            pens=self.pens,
            tasks=self.task_orders(job, attempt, start.placement, self._surroundings(job, attempt, now)),
        )

    def task_orders(self, job: Job, attempt: int, placement: Placement, around: Surroundings) -> list[TaskOrder]:
        """Every task of a placement."""
        if not job.execution.command and not job.execution.image:
            raise OrderError(f"job {job.id}: there is nothing to run; give it a `command`")
        user = self.unix_user(job)
        ids = user_ids(user)
        shared = mps_variables(self.data) if self._needs_mps(placement) else {}
        home = {"HOME": home_of(user), "USER": user, "LOGNAME": user} if ids else {}
        tasks = tasks_by_role(job.gang.roles)
        return [
            self._task_order(
                slot, tasks[slot.role], around, {**environment_of(slot, placement, around), **shared, **home}, ids
            )
            for slot in placement.slots
        ]

    def _needs_mps(self, placement: Placement) -> bool:
        return any(
            slot.portion is not None and slot.portion.mode is Mode.MPS and slot.node in self.device_names
            for slot in placement.slots
        )

    def around(self, order: Order, job: Job) -> Surroundings:
        """The surroundings that an attempt was started in, for members that join it."""
        before = order["tasks"][0]["env"]
        deadline_s = before.get("PHALANX_DEADLINE")
        port, deadline_ms = int(before["MASTER_PORT"]), int(deadline_s) * 1000 if deadline_s else None
        return self._describe(job, order["attempt"], port, deadline_ms)

    def _surroundings(self, job: Job, attempt: int, now: int) -> Surroundings:
        deadline_ms = now + job.max_run_ms if job.max_run_ms is not None else None
        return self._describe(job, attempt, _free_port(), deadline_ms)

    def _describe(self, job: Job, attempt: int, port: int, deadline_ms: int | None) -> Surroundings:
        folder = self.folder(job.id, attempt)
        return Surroundings(
            job=job,
            attempt=attempt,
            address=ADDRESS,
            port=port,
            checkpoint_dir=str(self.data / "checkpoints" / job.id),
            notice_file=folder.notice_path,
            gang_file=folder.gang_path,
            rest_file=folder.rest_path,
            steps_pipe=folder.steps_path,
            share_file=folder.share_path,
            deadline_ms=deadline_ms,
            device_names=self.device_names,
            extra={**self._secrets(job), **self.environment(job.id, attempt)},
        )

    def _secrets(self, job: Job) -> dict[str, str]:
        found = {}
        for name in job.execution.secrets:
            path = self.data / "secrets" / os.path.basename(name)
            try:
                found[name] = path.read_text().rstrip("\n")
            except OSError as error:
                raise OrderError(f"secret '{name}' of job {job.id}: {path}: {error.strerror}") from None
        return found

    def _task_order(
        self, slot: Slot, task: Task, around: Surroundings, env: dict[str, str], ids: list[int]
    ) -> TaskOrder:
        job, execution = around.job, around.job.execution
        cpus_milli, memory_mb = task.cpus_limit_milli or task.cpus_milli, task.memory_limit_mb or task.memory_mb
        gpus = len(slot.devices) if self.device_names else 0
        how = Contained(execution.command)
        work = str(self.data / "jobs" / job.id / "work")
        if execution.image:
            name = f"phalanx-{job.id}-{around.attempt}-{slot.rank}"
            folders = (os.path.dirname(around.notice_file), around.checkpoint_dir, work)
            how = contain(execution, name, env, folders, Limits(cpus_milli, memory_mb, gpus))
        elif any(source != target for source, target in execution.mounts):
            raise OrderError(f"job {job.id}: `mounts` to another place need an `image` to be mounted in")
        return TaskOrder(
            rank=slot.rank,
            role=slot.role,
            node=slot.node,
            devices=list(slot.devices),
            argv=list(how.argv),
            env=env,
            workdir=work if execution.image or not execution.workdir else execution.workdir,
            user=ids,
            cpus_milli=cpus_milli,
            memory_mb=memory_mb,
            enter=list(how.enter),
            remove=list(how.remove),
        )


def shares_of(placement: Placement) -> list[Share]:
    """What the tasks of a placement may have of devices that they share."""
    return [
        Share(
            rank=slot.rank,
            gpu_permille=slot.portion.compute_permille,
            gpu_memory_mb=slot.portion.memory_mb + slot.portion.lent_mb,
        )
        for slot in placement.slots
        if slot.portion is not None
    ]


def tasks_by_role(roles: tuple[Role, ...], path: str = "") -> dict[str, Task]:
    """The task behind every path of role names."""
    found: dict[str, Task] = {}
    for role in roles:
        name = f"{path}/{role.name}" if path else role.name
        found.update(tasks_by_role(role.members, name) if role.members else {name: role.task})
    return found


def _free_port() -> int:
    """A port that nobody listens on now, for rank 0 to listen on."""
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return int(probe.getsockname()[1])


def _probe_of(probe: Probe | None) -> papers.Probe | None:
    if probe is None:
        return None
    targets = {
        ProbeKind.HTTP: ["127.0.0.1", str(probe.port), probe.path],
        ProbeKind.TCP: ["127.0.0.1", str(probe.port), ""],
        ProbeKind.COMMAND: list(probe.command),
    }
    return papers.Probe(
        kind=probe.kind.value,
        target=targets[probe.kind],
        interval_ms=probe.interval_ms,
        timeout_ms=probe.timeout_ms,
        failures=probe.failures_max,
        after_ms=probe.after_ms,
    )
