"""What a job asks of one node that no node has, with the most that one has of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from phalanx.cluster.cluster import Node
from phalanx.engine.state.state import State
from phalanx.engine.why.explain import Explanation
from phalanx.protocol.reason import Reason
from phalanx.words.phrases import counted, listed
from phalanx.workload.gang import Role, Task


class _Measure(NamedTuple):
    """Something that tasks ask for and nodes have, in numbers, and such a number in words."""

    asked: Callable[[Task], float]
    of: Callable[[Node], float]
    words: Callable[[float], str]


MEASURES = {
    "node_gpus": _Measure(lambda task: task.gpus, lambda node: node.gpus, lambda n: counted(int(n), "GPU")),
    "node_cpus": _Measure(lambda task: task.cpus_milli, lambda node: node.cpus_milli, lambda n: f"{n / 1000:g} CPUs"),
    "node_memory": _Measure(
        lambda task: task.memory_mb, lambda node: node.memory_mb, lambda n: f"{n / 1024:g} GB of memory"
    ),
    "node_nics": _Measure(lambda task: task.nics, lambda node: node.nics, lambda n: counted(int(n), "NIC")),
    "gpu_memory": _Measure(
        lambda task: task.gpu_memory_gb, lambda node: node.gpu_memory_gb, lambda n: f"{n:g} GB of GPU memory"
    ),
}
"""By the predicate that rules nodes out for having too little of it."""


def most_of_a_node(state: State, explanation: Explanation) -> str:
    """What a task asks for and the most that a node has, of whatever rules out the most nodes; empty where the job
    fails by something else.
    """
    refusal = explanation.refusal
    if explanation.reason is not Reason.NEVER_FITS or explanation.misfit is not None or refusal is None:
        return ""
    tasks = list(_tasks(state.record(explanation.job).asked.gang.roles))
    for name, _ in sorted(refusal.ruled_out, key=lambda each: -each[1]):
        words = _types(state, tasks) if name == "gpu_type" else _amount(state, tasks, MEASURES.get(name))
        if words:
            return words
    return ""


def _amount(state: State, tasks: list[Task], measure: _Measure | None) -> str:
    if measure is None:
        return ""
    for task in tasks:
        nodes = [node for node in state.cluster.nodes if not task.gpu_types or node.gpu_type in task.gpu_types]
        most = max((measure.of(node) for node in nodes), default=0)
        if measure.asked(task) > most:
            which = f" with {listed(task.gpu_types)}" if task.gpu_types else ""
            asked, found = measure.words(measure.asked(task)), measure.words(most).partition(" ")[0]
            return f"a task asks for {asked}, and the most a node{which} has is {found}"
    return ""


def _types(state: State, tasks: list[Task]) -> str:
    have = tuple(dict.fromkeys(node.gpu_type for node in state.cluster.nodes if node.gpu_type))
    for task in tasks:
        if task.gpu_types and not any(each in have for each in task.gpu_types):
            return f"a task asks for {listed(task.gpu_types)}, and the cluster has {listed(have) or 'no GPUs'}"
    return ""


def _tasks(roles: tuple[Role, ...]) -> Iterator[Task]:
    for role in roles:
        if role.members:
            yield from _tasks(role.members)
        else:
            yield role.task
