"""What is asked of Slurm for an attempt: the arguments of sbatch, worked out from the placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.backends.local.orders import OrderError, tasks_by_role
from phalanx.cluster.cluster import Node
from phalanx.placement.placement import Placement
from phalanx.workload.job import Job

OPTIONS = {
    "slurm/partition": "--partition",
    "slurm/account": "--account",
    "slurm/qos": "--qos",
    "slurm/reservation": "--reservation",
    "slurm/licenses": "--licenses",
}
"""Labels of a job that become options of sbatch; all else is decided by phalanx."""

NAME_MAX = 64
SLACK_MIN = 2
"""Slurm's time limit ends a job this much later than phalanx does, which can save first."""


@dataclass(frozen=True, slots=True)
class Share:
    """What an attempt takes of each of some nodes."""

    nodes: tuple[str, ...]
    gpus: int
    cpus: int
    memory_mb: int


def sbatch_arguments(job: Job, shares: Sequence[Share], comment: str, folder: str, ids: Sequence[int]) -> list[str]:
    """The command that submits an attempt, held, pinned to its nodes."""
    common = [
        *("--parsable", "--hold", "--no-requeue", f"--comment={comment}", f"--job-name={_name(job)}"),
        *(f"--output={folder}/slurm.out", "--open-mode=append", f"--chdir={folder}", "--export=ALL"),
    ]
    if ids:
        common += [f"--uid={ids[0]}", f"--gid={ids[1]}"]
    parts = [[*_of_site(job), *_limit(job), *_part(share)] for share in shares]
    argv = ["sbatch", *common, *parts[0]]
    for part in parts[1:]:
        argv += [":", *part]
    return argv


def shares_of(job: Job, placement: Placement, nodes: Mapping[str, Node]) -> list[Share]:
    """What it takes of its nodes. Nodes with as many GPUs are asked for together; others are parts of a hetjob."""
    if any(slot.portion is not None for slot in placement.slots):
        raise OrderError(f"job {job.id}: parts of GPUs are not run on Slurm; ask for whole ones")
    each = {name: _taken(job, placement, nodes[name]) for name in placement.nodes}
    groups: dict[int, list[Share]] = {}
    for share in each.values():
        groups.setdefault(share.gpus, []).append(share)
    return [_joined(group) for group in groups.values()]


def _joined(group: Sequence[Share]) -> Share:
    names = tuple(name for share in group for name in share.nodes)
    return Share(names, group[0].gpus, max(share.cpus for share in group), max(share.memory_mb for share in group))


def _taken(job: Job, placement: Placement, node: Node) -> Share:
    tasks = tasks_by_role(job.gang.roles)
    here = [slot for slot in placement.slots if slot.node == node.name]
    gpus = sum(len(slot.devices) for slot in here)
    cpus_milli = sum(tasks[slot.role].cpus_milli for slot in here)
    memory_mb = sum(tasks[slot.role].memory_mb for slot in here)
    cpus = max(-(-cpus_milli // 1000), 1)
    if not memory_mb:
        # Without a word Slurm would give it all memory of the node, and no other job a place there.
        part = gpus / node.gpus if gpus and node.gpus else cpus * 1000 / max(node.cpus_milli, 1)
        memory_mb = int(node.memory_mb * min(part, 1.0))
    return Share((node.name,), gpus, cpus, max(memory_mb, 1))


def _part(share: Share) -> list[str]:
    wanted = [
        f"--nodelist={','.join(share.nodes)}",
        f"--nodes={len(share.nodes)}",
        *("--ntasks-per-node=1", f"--cpus-per-task={share.cpus}", f"--mem={share.memory_mb}M"),
    ]
    return [*wanted, f"--gres=gpu:{share.gpus}"] if share.gpus else wanted


def _of_site(job: Job) -> list[str]:
    labels = dict(job.labels)
    return [f"{option}={labels[label]}" for label, option in OPTIONS.items() if labels.get(label)]


def _limit(job: Job) -> list[str]:
    if job.max_run_ms is None:
        return []
    return [f"--time={-(-job.max_run_ms // 60_000) + SLACK_MIN}"]


def _name(job: Job) -> str:
    """A name that no list of Slurm's stumbles over."""
    plain = "".join(each if each.isascii() and (each.isalnum() or each in "-_.") else "-" for each in job.name)
    return plain[:NAME_MAX] or f"phalanx-{job.id}"
