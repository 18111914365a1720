"""Orders: what a Start or Resize comes to on this machine, worked out before anything is begun."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from phalanx.backends.live import History
from phalanx.backends.local import attempt_files
from phalanx.backends.local.attempt_files import Binds, Grounds, Order, Sandbox, Share, TaskOrder
from phalanx.backends.local.container import Contained, Limits, Place, checked_variables, contain
from phalanx.backends.local.environment import Surroundings, engine_environment, environment_of
from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.host.cgroup import NOWHERE
from phalanx.backends.local.host.mps import MPS_FOLDERS, mps_variables
from phalanx.backends.local.host.unix_user import home_of, task_ids
from phalanx.backends.registry import TURN_MS, as_server, no_secrets, no_variables
from phalanx.cluster.device import Mode
from phalanx.errors import PhalanxError
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import Start
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job, Kind, Probe, ProbeKind, UnixIdentity

ADDRESS = "127.0.0.1"
CERTIFICATE = "PHALANX_CA_FILE"


class OrderError(PhalanxError):
    """A job that cannot be run here, whatever happens."""


@dataclass(frozen=True, slots=True)
class Yard:
    """Where and how attempts run here. `data` holds the folders of all jobs; `environment` gives further variables of
    an attempt, such as where it reports its progress; `identity` is the Unix user that a job's tasks run as; jobs that
    take a device in turns run for `turn_ms` each; `hidden` are files and folders that tasks must not see;
    `secrets` gives those of a job, or raises why it may not start; `history` is what the store knows of attempts;
    `real_nodes` are those that are this machine, and simulated devices are numbered from `first_simulated`.
    """

    data: Path
    environment: Callable[[str, int], Mapping[str, str]] = no_variables
    identity: Callable[[Job], UnixIdentity | None] = as_server
    device_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    pens: Grounds = field(default_factory=NOWHERE.copy)
    turn_ms: int = TURN_MS
    hidden: Sequence[str] = ()
    secrets: Callable[[Job], Mapping[str, str]] = no_secrets
    history: History = field(default_factory=History)
    first_simulated: int = 0
    real_nodes: tuple[str, ...] | None = None

    @property
    def backend(self) -> Path:
        """What this backend keeps for itself."""
        return self.data / "backend"

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
            incarnation=self.history.incarnation(job.id, attempt),
            queue=job.queue,
            owner=job.user,
            term=start.id.term,
            seq=start.id.seq,
            grace_ms=job.grace_ms,
            service=job.kind is Kind.SERVICE,
            probe=_probe_of(job.execution.probe),
            idle_ms=job.execution.idle_timeout_ms or 0,
            pens=self.pens,
            tasks=self.task_orders(job, attempt, start.placement, self._surroundings(job, attempt, now)),
            user=task_ids(self.identity(job)),
        )

    def task_orders(self, job: Job, attempt: int, placement: Placement, around: Surroundings) -> list[TaskOrder]:
        """Every task of a placement."""
        if not job.execution.command and not job.execution.image:
            raise OrderError(f"job {job.id}: there is nothing to run; give it a `command`")
        identity = self.identity(job)
        ids = task_ids(identity)
        shared = mps_variables(self.data) if self._needs_mps(placement) else {}
        shared |= self._home(job, identity) if identity is not None and ids else {}
        tasks = tasks_by_role(job.gang.roles)
        return [
            self._task_order(slot, tasks[slot.role], around, environment_of(slot, placement, around) | shared, ids)
            for slot in self.slots_of(placement)
        ]

    def slots_of(self, placement: Placement) -> tuple[Slot, ...]:
        """The tasks of a placement that are run here."""
        return placement.slots

    def _home(self, job: Job, identity: UnixIdentity) -> dict[str, str]:
        """Where tasks of another Unix user are at home: a number without a name has a folder of its account's."""
        home = home_of(identity.user) if identity.user else str(self.home(job))
        name = identity.user or job.user
        return {"HOME": home, "USER": name, "LOGNAME": name, "TMPDIR": "/tmp"}

    def is_at_home_here(self, job: Job) -> bool:
        """Whether the Unix user of a job has no home but ours."""
        identity = self.identity(job)
        return identity is not None and not identity.user

    def home(self, job: Job) -> Path:
        """The home of an account whose Unix user has none."""
        if not job.user or "/" in job.user or job.user.startswith("."):
            raise OrderError(f"job {job.id}: user {job.user!r} cannot name a folder")
        return self.data / "homes" / job.user

    def _reporting(self, job: str, attempt: int) -> dict[str, str]:
        """Where an attempt reports. A certificate to trust is copied to where its tasks can read it."""
        variables = dict(self.environment(job, attempt))
        if CERTIFICATE in variables:
            variables[CERTIFICATE] = self.folder(job, attempt).certificate_path
        return variables

    def certificate_for(self, job: str, attempt: int) -> str:
        """The certificate that tasks are to trust; empty if none is needed."""
        return self.environment(job, attempt).get(CERTIFICATE, "")

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
            extra={**self.secrets(job), **self._reporting(job.id, attempt)},
            first_simulated=self.first_simulated,
        )

    def _task_order(
        self, slot: Slot, task: Task, around: Surroundings, env: dict[str, str], ids: list[int]
    ) -> TaskOrder:
        job, execution = around.job, around.job.execution
        cpus_milli, memory_mb = task.cpus_limit_milli or task.cpus_milli, task.memory_limit_mb or task.memory_mb
        gpus = len(slot.devices) if self.device_names else 0
        work = str(self.data / "jobs" / job.id / "work")
        folder, shared = self.folder(job.id, around.attempt).path, os.path.dirname(around.notice_file)
        own = (shared, around.checkpoint_dir, work)
        how = Contained(execution.command)
        start = work if execution.image or not execution.workdir else execution.workdir
        if execution.image:
            place = Place(
                # Two servers of one machine may have jobs of the same number.
                name=f"phalanx-{crc32(folder.encode()):08x}-{job.id}-{around.attempt}-{slot.rank}",
                variables_path=f"{folder}/{slot.rank}.env",
                ids=ids,
                folders=own,
                mounts=self._mounts(job, f"{folder}/{slot.rank}.mounts", ids),
            )
            how = contain(execution, place, Limits(cpus_milli, memory_mb, gpus))
        elif any(source != target for source, target in execution.mounts):
            raise OrderError(f"job {job.id}: `mounts` to another place need an `image` to be mounted in")
        order = TaskOrder(
            rank=slot.rank,
            role=slot.role,
            node=slot.node,
            devices=list(slot.devices),
            argv=list(how.argv),
            env=engine_environment(env) if how.by_server else env,
            workdir=folder if how.by_server else start,
            user=[] if how.by_server else ids,
            cpus_milli=cpus_milli,
            memory_mb=memory_mb,
            enter=list(how.enter),
            remove=list(how.remove),
        )
        if how.by_server:
            order["inside"], order["inside_path"] = checked_variables(env), f"{folder}/{slot.rank}.env"
            if ids and execution.mounts:
                sources = [source for source, _ in execution.mounts]
                order["binds"] = Binds(user=ids, folder=f"{folder}/{slot.rank}.mounts", sources=sources)
        elif self.hidden and not ids:
            order["sandbox"] = self._sandbox(own, env)
        if job.kind is Kind.INTERACTIVE and not how.by_server:
            order["terminal"] = True
        return order

    def _mounts(self, job: Job, staged: str, ids: list[int]) -> list[tuple[str, str]]:
        """What a job has mounted into its container: what another user names by where it is staged, what the server's
        own user names only if nothing of the server's is in it.
        """
        if ids:
            return [(f"{staged}/{number}", target) for number, (_, target) in enumerate(job.execution.mounts)]
        for source, _ in job.execution.mounts:
            real = os.path.realpath(source)
            for kept in (os.path.realpath(self.data), *self.hidden):
                if os.path.commonpath([real, kept]) in (real, kept):
                    raise OrderError(f"job {job.id}: mount '{source}': the server's own files are there")
        return list(job.execution.mounts)

    def _sandbox(self, own: tuple[str, str, str], env: Mapping[str, str]) -> Sandbox:
        """What a task that runs as the server's user sees of the server's folders: its own, and what it shares."""
        shared, checkpoints, work = own
        service = [path for name in MPS_FOLDERS if (path := env.get(name, "")).startswith(str(self.data))]
        return Sandbox(hide=list(self.hidden), read=[shared], write=[checkpoints, work, *service])


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
    """A port that is free now, for rank 0 to listen on."""
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return int(probe.getsockname()[1])


def _probe_of(probe: Probe | None) -> attempt_files.Probe | None:
    if probe is None:
        return None
    targets = {
        ProbeKind.HTTP: ["127.0.0.1", str(probe.port), probe.path],
        ProbeKind.TCP: ["127.0.0.1", str(probe.port), ""],
        ProbeKind.COMMAND: list(probe.command),
    }
    return attempt_files.Probe(
        kind=probe.kind.value,
        target=targets[probe.kind],
        interval_ms=probe.interval_ms,
        timeout_ms=probe.timeout_ms,
        failures=probe.failures_max,
        after_ms=probe.after_ms,
    )
