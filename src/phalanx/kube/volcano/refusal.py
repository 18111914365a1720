"""Refusals: what a job asks for that there is not, or that cannot be meant."""

from __future__ import annotations

from phalanx.kube.volcano.job import PartitionPolicy, Policy, TaskSpec, VolcanoJob
from phalanx.kube.volcano.plugins.registry import PLUGINS
from phalanx.kube.volcano.policies import ACTIONS, EVENTS

PODS_MAX = 10_000
"""Pods of one job: the names of their hosts, and how many of them are in which phase, are objects of etcd."""

TASKS_MAX = 500


def refusal_of(job: VolcanoJob) -> str:
    """Why a job is not run, by the field that is to be changed; empty if it is."""
    spec, names = job.spec, [task.name for task in job.tasks]
    if not job.tasks:
        return "spec.tasks: expected at least one task"
    if len(names) > TASKS_MAX:
        return f"spec.tasks: expected at most {TASKS_MAX} tasks, got {len(names)}"
    if len(set(names)) < len(names) or not all(names):
        return f"spec.tasks: expected a name of its own for each, got {', '.join(map(repr, names))}"
    if (negative := next((task for task in job.tasks if task.replicas < 0), None)) is not None:
        return f"spec.tasks[{negative.name}].replicas: expected 0 or more, got {negative.replicas}"
    if job.replicas > PODS_MAX:
        return f"spec.tasks: expected at most {PODS_MAX} replicas of all tasks, got {job.replicas}"
    if job.least > job.replicas:
        return f"spec.minAvailable: expected at most the {job.replicas} replicas of all tasks, got {job.least}"
    for name, arguments in (spec.plugins or {}).items():
        plugin = PLUGINS.get(name)
        if plugin is None:
            return f"spec.plugins: expected some of {', '.join(PLUGINS)}, got {name}"
        if line := plugin.refusal(tuple(arguments or ())):
            return f"spec.plugins.{name}: {line}"
    if any(each.volume_claim is not None for each in spec.volumes or ()):
        return "spec.volumes: phalanx makes no claims of a volumeClaim; name one that exists in volumeClaimName"
    lines = (
        *(_policy(f"spec.policies[{i}]", each) for i, each in enumerate(spec.policies or ())),
        *(_task(task, names) for task in job.tasks),
    )
    return next(filter(None, lines), "") or _cycle(job.tasks)


def _task(task: TaskSpec, names: list[str]) -> str:
    where = f"spec.tasks[{task.name}]"
    if task.least > task.replicas:
        return f"{where}.minAvailable: expected at most its {task.replicas} replicas, got {task.least}"
    unknown = [name for name in (task.depends_on.name or ()) if name not in names] if task.depends_on else []
    if unknown:
        return f"{where}.dependsOn: there is no task {unknown[0]}; there are {', '.join(names)}"
    if task.partition_policy is not None and (line := _partitions(task, task.partition_policy)):
        return f"{where}.partitionPolicy: {line}"
    policies = (_policy(f"{where}.policies[{i}]", each) for i, each in enumerate(task.policies or ()))
    return next(filter(None, policies), "")


def _partitions(task: TaskSpec, partitions: PartitionPolicy) -> str:
    total, size, least = partitions.total_partitions, partitions.partition_size, partitions.min_partitions
    if total < 1 or size < 1 or total * size != task.replicas:
        return (
            f"expected totalPartitions and partitionSize that make its {task.replicas} replicas, got {total} and {size}"
        )
    if not 0 <= least <= total:
        return f"expected minPartitions of at most {total}, got {least}"
    if least and task.least != least * size:
        return f"expected minPartitions × partitionSize to be its minAvailable, {task.least}, got {least * size}"
    return ""


def _policy(where: str, policy: Policy) -> str:
    if policy.action not in ACTIONS:
        return f"{where}.action: expected one of {', '.join(ACTIONS)}, got {policy.action!r}"
    for event in policy.all_events:
        if event not in EVENTS:
            return f"{where}.event: expected one of {', '.join(EVENTS)}, got {event!r}"
    if not policy.all_events and not policy.exit_code:
        return f"{where}: expected an event, or an exitCode other than 0"
    if policy.timeout is not None:
        return f"{where}.timeout: phalanx acts at once; leave it out"
    return ""


def _cycle(tasks: list[TaskSpec]) -> str:
    """Whether tasks wait for one another in a circle, so that none would ever be made."""
    left = {task.name: set(task.depends_on.name or ()) if task.depends_on else set() for task in tasks}
    while ready := [name for name, waits in left.items() if not waits & left.keys()]:
        for name in ready:
            del left[name]
    return f"spec.tasks: {', '.join(left)} depend on one another" if left else ""
