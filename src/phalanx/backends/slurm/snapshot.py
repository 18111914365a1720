"""A Slurm cluster as Slurm tells of it at one moment: texts that are recorded, and the State that they come to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from phalanx.backends.slurm.commands import SlurmError, SlurmMissing, run
from phalanx.backends.slurm.held import allocated
from phalanx.backends.slurm.nodes import SlurmNode, cluster_of, fields, read_nodes
from phalanx.beside.taken import Taken
from phalanx.cluster.cluster import Cluster, Health
from phalanx.engine.turn import record
from phalanx.errors import PhalanxError
from phalanx.placement.placement import Slot
from phalanx.protocol.event import (
    ClusterDefined,
    ForeignUse,
    JobHeld,
    JobSubmitted,
    NodeHealthChanged,
    TimerDue,
)
from phalanx.workload.formats.hostlist import HostlistError, expand, numbers
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import After, Dependency, Job
from phalanx.workload.selector import excluding

RECORDED: Mapping[str, tuple[str, ...]] = {
    "nodes.txt": ("scontrol", "show", "node", "--details", "--oneliner"),
    "jobs.txt": ("scontrol", "show", "job", "--details", "--oneliner"),
    "config.txt": ("scontrol", "show", "config"),
    "partitions.txt": ("scontrol", "show", "partition", "--oneliner"),
    "sinfo.txt": ("sinfo", "--all", "--list-reasons"),
    "squeue.txt": ("squeue", "--all", "--start"),
    "sshare.txt": ("sshare", "--all", "--long", "--parsable2"),
    "sprio.txt": ("sprio", "--long"),
}
"""What is recorded, by the command that prints it. Only nodes and jobs must be there."""

ACCOUNTING = "JobID,Submit,Start,End,Elapsed,State,AllocTRES,User,Account,Partition,NNodes,Priority,Timelimit,QOS"
NEEDED = ("nodes.txt", "jobs.txt")
TRACE, TAKEN = "trace.txt", "taken.txt"

OF_LIMITS = re.compile(
    r"(QOS|Assoc|Partition|Licenses|Reservation|InvalidAccount|InvalidQOS|JobHeld|Cleaning|BadConstr)"
)
"""Reasons of Slurm's that come from rules that the State does not have: such jobs are held in it."""

MEMBERS_MAX = 1_000
"""Pending members of one array that are told apart."""

_GPUS = re.compile(r"(?:gres[:/])?gpu(?:[:=][A-Za-z][^:=,]*)?[:=](\d+)")
_LIMIT = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)$")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)")
_MEGABYTES = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}


class SnapshotError(PhalanxError):
    """Texts that no snapshot can be made of."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A pending or running job, with Slurm's reason for it."""

    job: Job
    is_running: bool
    submitted_ms: int
    started_ms: int
    reason: str
    priority: int
    slots: tuple[Slot, ...] = ()


def record_texts(folder: Path, days: int, now_ms: int, ask: Callable[[list[str]], str] = run) -> list[str]:
    """Records what Slurm says now; what it does not answer and is not needed is told, by command."""
    folder.mkdir(parents=True, exist_ok=True)
    missing: list[str] = []
    history = ("sacct", "--allusers", "--parsable2", f"--starttime=now-{days}days", f"--format={ACCOUNTING}")
    for name, argv in {**RECORDED, TRACE: history}.items():
        try:
            (folder / name).write_text(ask(list(argv)))
        except SlurmError as error:
            if name in NEEDED or isinstance(error, SlurmMissing):
                raise
            missing.append(f"{argv[0]}: {error}")
    (folder / TAKEN).write_text(f"{now_ms}\n")
    return missing


def taken_ms(folder: Path) -> int:
    """When the texts of a folder were recorded: as it says, or else when its jobs were written."""
    try:
        return int((folder / TAKEN).read_text())
    except (FileNotFoundError, ValueError):
        return int((folder / "jobs.txt").stat().st_mtime * 1000)


def read_folder(folder: Path, policy: str) -> Taken:
    """The State that recorded texts come to."""
    try:
        nodes = list(read_nodes((folder / "nodes.txt").read_text(errors="replace")))
        jobs = (folder / "jobs.txt").read_text(errors="replace")
    except FileNotFoundError as error:
        what = "scontrol show node -d -o" if "nodes" in str(error.filename) else "scontrol show job -d -o"
        raise SnapshotError(f"{error.filename}: there is no such file; it has what `{what}` prints") from None
    if not nodes:
        raise SnapshotError(f"{folder}/nodes.txt: no node; expected what `scontrol show node -d -o` prints")
    return taken_of(nodes, jobs, policy, taken_ms(folder))


def taken_of(nodes: list[SlurmNode], jobs: str, policy: str, now_ms: int) -> Taken:
    """The State of nodes and jobs at a moment: what runs has the devices that it has, the rest is pending."""
    cluster = cluster_of(nodes)
    taken = Taken()
    queued = _ranked(list(_read_jobs(jobs, cluster, taken.left_out)))
    first_ms = min([now_ms, *(min(each.submitted_ms, each.started_ms or now_ms) for each in queued)])
    record(taken.state, taken.journal, ClusterDefined(cluster, policy), first_ms)
    for at_ms, _, each in sorted(_moments(queued, now_ms), key=lambda moment: moment[:2]):
        _tell(taken, each, at_ms)
    for node in nodes:
        if node.health is not Health.HEALTHY:
            taken.tell(NodeHealthChanged(node.name, node.health, node.told), now_ms)
    _foreign(taken, nodes, queued, now_ms)
    record(taken.state, taken.journal, TimerDue(), now_ms)
    return taken


Step = tuple[str, QueuedJob]


def _moments(queued: list[QueuedJob], now_ms: int) -> Iterator[tuple[int, int, Step]]:
    """When each was submitted, started or held."""
    known = {each.job.id for each in queued}
    for number, each in enumerate(queued):
        after = tuple(one for one in each.job.after if one.job in known and one.job != each.job.id)
        each = replace(each, job=replace(each.job, after=after))
        yield min(each.submitted_ms, now_ms), 3 * number, ("submit", each)
        if each.is_running:
            yield min(max(each.started_ms, each.submitted_ms), now_ms), 3 * number + 1, ("start", each)
        elif OF_LIMITS.match(each.reason):
            yield now_ms, 3 * number + 2, ("hold", each)


def _tell(taken: Taken, step: Step, at_ms: int) -> None:
    what, each = step
    job = each.job
    if what == "submit":
        if taken.tell(JobSubmitted(job), at_ms) and not each.is_running:
            taken.reasons[job.id] = each.reason
    elif job.id not in taken.state.jobs:
        return
    elif what == "hold":
        taken.tell(JobHeld(job.id), at_ms)
    else:
        taken.start(job.id, each.slots, at_ms)


def _foreign(taken: Taken, nodes: list[SlurmNode], queued: list[QueuedJob], now_ms: int) -> None:
    """What nodes say is used of them beyond the jobs that were read."""
    held: dict[str, set[int]] = {}
    for each in queued:
        for slot in each.slots if each.job.id in taken.state.jobs else ():
            held.setdefault(slot.node, set()).update(slot.devices)
    for node in nodes:
        ours = held.get(node.name, set())
        devices = tuple(device for device in node.used_devices if device not in ours and device < node.gpus)
        unknown = min(max(node.used_gpus - len(ours) - len(devices), 0), node.gpus - len(ours) - len(devices))
        if devices or unknown:
            taken.tell(ForeignUse(node.name, devices, unknown), now_ms)


def _ranked(queued: list[QueuedJob]) -> list[QueuedJob]:
    """Slurm's priorities go to four billion: only their order is kept."""
    ranks = {priority: rank for rank, priority in enumerate(sorted({each.priority for each in queued}))}
    return [replace(each, job=replace(each.job, priority=ranks[each.priority])) for each in queued]


def _read_jobs(text: str, cluster: Cluster, left_out: Counter[str]) -> Iterator[QueuedJob]:
    gpus = {node.name: node.gpus for node in cluster.nodes}
    for line in text.splitlines():
        found = fields(line)
        state = found.get("JobState", "").split(",")[0]
        if "JobId" not in found or state not in ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING"):
            continue
        try:
            each = _queued(found, line, state != "PENDING", gpus)
        except (ValueError, HostlistError) as error:
            left_out[f"job of a form that is not known ({str(error)[:60]})"] += 1
            continue
        if each.is_running and not each.slots:
            left_out["running job on nodes that are not in the cluster"] += 1
            continue
        yield from _members(found, each)


def _members(found: Mapping[str, str], each: QueuedJob) -> Iterator[QueuedJob]:
    """The pending members of an array, which Slurm has in one line."""
    listed = re.match(r"[\d,\-]+", found.get("ArrayTaskId", ""))
    if listed is None or each.is_running or found["ArrayTaskId"].isdecimal():
        yield each
        return
    for index in numbers(listed[0].strip(",-"))[:MEMBERS_MAX]:
        yield replace(each, job=replace(each.job, id=f"{found['ArrayJobId']}_{index}"))


def _queued(found: Mapping[str, str], line: str, is_running: bool, gpus: Mapping[str, int]) -> QueuedJob:
    count = max(_number(found.get("NumNodes", "1")), 1)
    slots = _slots(found, line, gpus) if is_running else ()
    nodes = len(slots) if slots else count
    uneven = len({len(slot.devices) for slot in slots}) > 1
    task = Task(
        gpus=len(slots[0].devices) if slots else -(-_gpus_asked(found, nodes) // nodes),
        cpus_milli=1000 * _number(found.get("NumCPUs", "0")) // nodes,
        memory_mb=_memory(found, nodes),
    )
    roles = _roles(slots, task) if uneven else (Role("worker", nodes, nodes, task),)
    limit_ms = _limit_ms(found.get("TimeLimit", ""))
    labels = {name: found[key] for name, key in _LABELS.items() if found.get(key, "(null)") not in ("(null)", "")}
    number = _id_of(found)
    job = Job(
        number,
        Gang(roles),
        name=found.get("JobName", "")[:200],
        queue="default",
        user=found.get("UserId", "").partition("(")[0],
        max_run_ms=limit_ms,
        duration_ms=limit_ms,
        begin_ms=_moment_ms(found.get("EligibleTime", "")) if found.get("Reason") == "BeginTime" else None,
        after=tuple(_after(found.get("Dependency", ""))),
        labels=tuple(labels.items()),
        # Slurm stops no job for another, unless a site has it so.
        preemptible=False,
        node_selector=tuple(_selector(found)) if not is_running else (),
    )
    return QueuedJob(
        job,
        is_running,
        _moment_ms(found.get("SubmitTime", "")) or 0,
        _moment_ms(found.get("StartTime", "")) or 0,
        found.get("Reason", "None"),
        _number(found.get("Priority", "0")),
        _as_roles(slots) if uneven else slots,
    )


_LABELS = {"slurm/partition": "Partition", "slurm/account": "Account", "slurm/qos": "QOS", "slurm/reason": "Reason"}


def _roles(slots: tuple[Slot, ...], task: Task) -> tuple[Role, ...]:
    """Nodes with different counts of GPUs have roles of their own."""
    return tuple(Role(f"node{slot.rank}", 1, 1, replace(task, gpus=len(slot.devices))) for slot in slots)


def _as_roles(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    return tuple(replace(slot, role=f"node{slot.rank}") for slot in slots)


def _id_of(found: Mapping[str, str]) -> str:
    if "ArrayJobId" in found and found.get("ArrayTaskId", "").isdecimal():
        return f"{found['ArrayJobId']}_{found['ArrayTaskId']}"
    return found["JobId"]


def _slots(found: Mapping[str, str], line: str, gpus: Mapping[str, int]) -> tuple[Slot, ...]:
    """Where it runs, node by node, with the devices that Slurm names."""
    devices = {name: held.devices for name, held in allocated(line)}
    names = [name for name in expand(found.get("NodeList", "")) if name in gpus]
    return tuple(
        Slot(rank, "worker", name, tuple(each for each in devices.get(name, ()) if each < gpus[name]))
        for rank, name in enumerate(names)
    )


def _gpus_asked(found: Mapping[str, str], nodes: int) -> int:
    """The number of GPUs that a job asks for in all."""
    tasks = _number(found.get("NumTasks", "1")) or 1
    for key, times in (("TresPerNode", nodes), ("TresPerJob", 1), ("TresPerTask", tasks), ("ReqTRES", 1), ("TRES", 1)):
        counts = _GPUS.findall(found.get(key, ""))
        if counts:
            return int(counts[0]) * times
    return 0


def _memory(found: Mapping[str, str], nodes: int) -> int:
    """Megabytes of each node."""
    for key, times in (("MinMemoryNode", 1.0), ("MinMemoryCPU", _number(found.get("NumCPUs", "1")) / nodes)):
        size = _SIZE.match(found.get(key, ""))
        if size:
            return int(float(size[1]) * _MEGABYTES[size[2]] * times)
    return 0


def _selector(found: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if found.get("Partition", "(null)") != "(null)" and "," not in found["Partition"]:
        yield f"slurm/partition-{found['Partition']}", "true"
    features = found.get("Features", "(null)")
    if re.fullmatch(r"[\w.\-]+(&[\w.\-]+)*", features):
        for feature in features.split("&"):
            yield f"slurm/feature-{feature}", "true"
    excluded = expand(found.get("ExcNodeList", ""))
    if len(wanted := expand(found.get("ReqNodeList", ""))) == 1:
        yield "phalanx/node", wanted[0]
    elif excluded:
        yield "phalanx/node", excluding(excluded)


_KINDS = {"afterok": After.SUCCESS, "afterany": After.END, "afternotok": After.FAILURE, "after": After.START}


def _after(text: str) -> Iterator[Dependency]:
    for part in re.findall(r"(after\w*):(\d+)", text):
        if part[0] in _KINDS:
            yield Dependency(part[1], _KINDS[part[0]], keep=True)


def _limit_ms(text: str) -> int | None:
    found = _LIMIT.match(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 or None


def _moment_ms(text: str) -> int | None:
    """A time of Slurm's, which our commands have in UTC."""
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        return None


def _number(text: str) -> int:
    digits = re.match(r"\d+", text)
    return int(digits[0]) if digits else 0
