"""Candidates: the changes of each kind that are worth trying for a job, from the smallest to the largest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from phalanx.cluster.capacity import MB_PER_GB
from phalanx.cluster.cluster import CLUSTER
from phalanx.engine.state.records import UNSAID_MS, JobRecord
from phalanx.engine.state.state import State
from phalanx.engine.why.change import Change, ChangeKind, changed
from phalanx.engine.why.evidence import in_the_way, spared_for, spent_budgets
from phalanx.placement.fit import HARD_EFFECTS
from phalanx.placement.place import refusal
from phalanx.workload.family import relative_speed
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job, Kind
from phalanx.workload.share import ShareKind

NAMES_MAX = 4
"""Labels or taints up to which every combination of them is tried."""

LONGEST_MS = 365 * 86_400_000
"""What a job may say that it takes, where it says nothing: if that is too long, no job of that length is short."""

CPU_MILLI = 1_000
SHARE_STEPS = {ShareKind.FRACTION: 100, ShareKind.MPS: 10}
TENTHS = 10


@dataclass(frozen=True, slots=True)
class Chain:
    """Changes of one kind. The last goes at least as far as each before it: if that does not help, none does.

    In one that is `ordered` each goes as far as the one before it. In one that is `divisible` so does every amount that
    lies between two of them; between the last that does not help and the first that does the amounts are mostly those
    of the chain itself where it is `stepped`, so that the next one is tried before halves are.
    """

    changes: tuple[Change, ...]
    ordered: bool = True
    divisible: bool = False
    stepped: bool = False

    def smallest(self, at: int, helps: Callable[[Change], bool]) -> Change:
        """The smallest change that helps, if the one at this place does, and those before it do not."""
        enough = self.changes[at]
        if not self.divisible:
            return enough
        too_much = self.changes[at - 1].amount if at else enough.amount_was
        if self.stepped and too_much - enough.amount > 1:
            next_one = replace(enough, amount=enough.amount + 1)
            if not helps(next_one):
                return enough
            enough = next_one
        while too_much - enough.amount > 1:
            middle = replace(enough, amount=(too_much + enough.amount) // 2)
            if helps(middle):
                enough = middle
            else:
                too_much = middle.amount
        return enough


def chains(state: State, record: JobRecord) -> Iterator[Chain]:
    """The changes of a job itself, by kind: of the role that lacks something, or else the one that takes most GPUs."""
    job = record.job
    lacking = refusal(state.fit, record.asked).role if len(record.tasks) > 1 else ""
    path, task = changing_role(job, lacking)
    for chain in (
        _durations(state, record),
        *_amounts(path, task),
        _topologies(state, job),
        _selectors(job),
        _tolerations(state, job),
        _gpu_types(state, task),
        _gpu_memories(state, path, task),
        _replicas(job, lacking.partition("/")[0]),
        _gpus(job, path, task),
        _shares(job, path, task),
        _share_memories(path, task),
    ):
        if chain.changes:
            yield chain


def changing_role(job: Job, lacking: str = "") -> tuple[str, Task]:
    """The path and task of the role that lacks something, if that is known, or of the one that takes most GPUs."""
    leaves: list[tuple[int, str, Task]] = []

    def walk(roles: tuple[Role, ...], above: str, times: int) -> None:
        for role in roles:
            path = f"{above}/{role.name}" if above else role.name
            if role.members:
                walk(role.members, path, times * role.replicas_min)
            else:
                leaves.append((times * role.replicas_min * role.task.gpus, path, role.task))

    walk(job.gang.roles, "", 1)
    _, path, task = max(leaves, key=lambda leaf: (leaf[1] == lacking, leaf[0]))
    return path, task


def rules_of(job: Job) -> tuple[str, ...]:
    """The levels that the gang and its roles must lie in, each once."""

    def walk(roles: tuple[Role, ...]) -> Iterator[str]:
        for role in roles:
            yield role.topology.required
            yield from walk(role.members)

    return tuple(dict.fromkeys(filter(None, (job.gang.topology.required, *walk(job.gang.roles)))))


def dependencies(job: Job) -> Chain:
    """Jobs that it would not wait for."""
    others = tuple(dict.fromkeys(each.job for each in job.after))
    changes = tuple(Change(ChangeKind.DEPENDENCY, names=names) for names in _combined(others))
    return Chain(changes or (Change(ChangeKind.DEPENDENCY, names=others),), ordered=False)


def _durations(state: State, record: JobRecord) -> Chain:
    """Ends that come before the reserved time of a job, or before nodes are closed."""
    moments = (
        *(each.could_start_ms for each in state.reservations if each.at_ms < UNSAID_MS),
        *(window.start_ms for window in state.cluster.maintenance),
    )
    spare = sorted(dict.fromkeys(at_ms - state.now for at_ms in moments), reverse=True)
    shorter = [spare_ms for spare_ms in spare if 0 < spare_ms < record.estimate_ms]
    # By its length a job may also come before other jobs, or preempt them, whatever is reserved or closed.
    longest_ms = min(record.estimate_ms - 1, LONGEST_MS)
    if shorter and shorter[0] < longest_ms:
        shorter.insert(0, longest_ms)
    was_ms = record.job.duration_ms or 0
    changes = tuple(Change(ChangeKind.DURATION, spare_ms, was_ms) for spare_ms in shorter)
    return Chain(changes, divisible=True, stepped=True)


def put_off(state: State, record: JobRecord) -> Chain:
    """Maintenance that would not take place: before which the job does not end, or that has closed its nodes."""
    names = tuple(window.name for window in in_the_way(state, record))
    changes = tuple(Change(ChangeKind.MAINTENANCE, names=chosen) for chosen in _combined(names))
    return Chain(changes or (Change(ChangeKind.MAINTENANCE, names=names),), ordered=False)


def may_be_stopped(job: Job) -> Chain:
    """A preemptible job gets what can be reclaimed."""
    stays = not job.preemptible and job.kind is not Kind.SERVICE
    return Chain((Change(ChangeKind.PREEMPTIBLE),) if stays else ())


def more_budget(state: State, record: JobRecord) -> Change:
    """Budgets that would have to be more than the queues, it and those it lies in, have used; the first is told."""
    spent = spent_budgets(state, record.job.queue)
    first = spent[0]
    names = tuple(each.queue for each in spent)
    return Change(ChangeKind.BUDGET, first.spent_gpu_ms, first.budget_gpu_ms, names=names)


def shorter_min_run(state: State, record: JobRecord) -> Chain:
    """How much sooner attempts might be stopped than after the least time that their queues let them run."""
    spared = spared_for(state, record)
    names = tuple(sorted(dict.fromkeys(each.queue for each in spared)))
    sooner_ms = sorted(dict.fromkeys(each.until_ms - state.now for each in spared))
    return Chain(tuple(Change(ChangeKind.MIN_RUN, each_ms, names=names) for each_ms in sooner_ms))


def _amounts(path: str, task: Task) -> Iterator[Chain]:
    yield _less(Change(ChangeKind.CPUS, amount_was=max(task.cpus_milli, task.cpus_limit_milli), role=path), CPU_MILLI)
    yield _less(Change(ChangeKind.MEMORY, amount_was=max(task.memory_mb, task.memory_limit_mb), role=path), MB_PER_GB)
    fewer = range(task.nics - 1, -1, -1)
    yield Chain(tuple(Change(ChangeKind.NICS, nics, task.nics, role=path) for nics in fewer))


def _less(change: Change, step: int) -> Chain:
    """Less of what can be divided, to the unit in which it is asked for: the steps are tried first.

    The least is a step, or a tenth of what is asked where that is less: no job can do with next to nothing.
    """
    asked = change.amount_was
    least = min(step, -(-asked // TENTHS))
    amounts = [*range((asked - 1) // step * step, least - 1, -step)]
    if least < min([asked, *amounts]):
        amounts.append(least)
    return Chain(tuple(replace(change, amount=amount) for amount in amounts), divisible=True)


def _topologies(state: State, job: Job) -> Chain:
    """Every rule loosened to the next level outwards, and on until there is none."""
    outward = (*reversed(state.cluster.levels), CLUSTER)
    rules = [rule for rule in rules_of(job) if rule != CLUSTER]
    if not rules:
        return Chain(())
    first = min(outward.index(rule) for rule in rules)
    return Chain(
        tuple(
            Change(
                ChangeKind.TOPOLOGY,
                names=("" if level == CLUSTER else level,),
                names_was=tuple(rule for rule in rules if outward.index(rule) < at),
            )
            for at, level in enumerate(outward)
            if at > first
        )
    )


def _selectors(job: Job) -> Chain:
    labels = tuple("=".join(label) for label in job.node_selector)
    return Chain(tuple(Change(ChangeKind.SELECTOR, names=names) for names in _combined(labels)), ordered=False)


def _tolerations(state: State, job: Job) -> Chain:
    taints = dict.fromkeys(
        f"{taint.key}={taint.value}" if taint.value else taint.key
        for node in state.cluster.nodes
        for taint in node.taints
        if taint.effect in HARD_EFFECTS
        and not any(
            each.key in ("", taint.key) and each.value in ("", taint.value) and each.effect in ("", taint.effect)
            for each in job.tolerations
        )
    )
    return Chain(tuple(Change(ChangeKind.TOLERATION, names=names) for names in _combined(tuple(taints))), ordered=False)


def _combined(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """All combinations, the smallest first; with very many names none."""
    if len(names) <= NAMES_MAX:
        for count in range(1, len(names) + 1):
            yield from combinations(names, count)


def _gpu_types(state: State, task: Task) -> Chain:
    """Each other type, the fastest first, then any."""
    asked = task.gpu_types
    if not asked or not task.gpus:
        return Chain(())
    others = [name for name in state.capacity.gpu_types if name and name not in asked]
    others.sort(key=lambda name: -relative_speed(name, asked[0]))
    offers = [*((name,) for name in others), ()]
    changes = (Change(ChangeKind.GPU_TYPE, names=names, names_was=asked) for names in offers)
    return Chain(tuple(changes) if others else (), ordered=False)


def _gpu_memories(state: State, path: str, task: Task) -> Chain:
    sizes = dict.fromkeys(node.gpu_memory_gb for node in state.cluster.nodes if node.gpus)
    smaller = sorted((size for size in sizes if size < task.gpu_memory_gb), reverse=True)
    asked = round(1000 * task.gpu_memory_gb)
    return Chain(tuple(Change(ChangeKind.GPU_MEMORY, round(1000 * size), asked, role=path) for size in smaller))


def _replicas(job: Job, lacking: str) -> Chain:
    """Fewer of the role that lacks something, or else of the one whose replicas take most GPUs."""
    role = max(job.gang.roles, key=lambda role: (role.name == lacking, role.gpus_each * role.replicas_min))
    fewer = (
        Change(ChangeKind.REPLICAS, count, role.replicas_min, role=role.name)
        for count in range(role.replicas_min - 1, 0, -1)
    )
    return Chain(tuple(_with_gpus(job, change) for change in fewer if _has_a_mesh(job, change)))


def _gpus(job: Job, path: str, task: Task) -> Chain:
    """Fewer GPUs for each task of a role."""
    if task.share is not None:
        return Chain(())
    fewer = (Change(ChangeKind.GPUS, gpus, task.gpus, role=path) for gpus in range(task.gpus - 1, 0, -1))
    return Chain(tuple(_with_gpus(job, change) for change in fewer if _has_a_mesh(job, change)))


def _with_gpus(job: Job, change: Change) -> Change:
    return replace(change, gpus=changed(job, change).gang.gpus_min)


def _has_a_mesh(job: Job, change: Change) -> bool:
    """Whether what is left of a gang with a parallel plan holds whole replicas of the model."""
    plan = job.parallel
    if plan is None or job.gang.elastic:
        return True
    gang = changed(replace(job, parallel=None), change).gang
    return gang.gpus_max % (plan.tp * plan.pp) == 0 and all(role.gpus_each % plan.tp == 0 for role in gang.roles)


def _shares(job: Job, path: str, task: Task) -> Chain:
    """Part of a device, where a task has one device to itself or a larger part of one."""
    if task.gpus != 1 or job.parallel is not None:
        return Chain(())
    kind, whole = ShareKind.FRACTION, 1000
    if task.share is not None:
        kind, whole = task.share.kind, task.share.amount
        if kind not in SHARE_STEPS:
            return Chain(())
    return _less(Change(ChangeKind.SHARE, amount_was=whole, names=(kind.value,), role=path), SHARE_STEPS[kind])


def _share_memories(path: str, task: Task) -> Chain:
    """Less of a device's memory, where it is asked for beside the part of its compute."""
    asked_mb = task.share.memory_mb if task.share is not None else None
    if asked_mb is None:
        return Chain(())
    return _less(Change(ChangeKind.SHARE_MEMORY, amount_was=asked_mb, role=path), MB_PER_GB)
