"""Nodes that a job prefers, and how much of it lies there."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.cluster.bits import members
from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.state import State

NAMED_MAX = 8


@dataclass(frozen=True, slots=True)
class Preferred:
    """How many `nodes` a job prefers to others, and the `names` of the most preferred ones. Of its `tasks`, none where
    it has no devices, so many lie `there`.
    """

    nodes: int
    names: tuple[str, ...]
    tasks: int = 0
    there: int = 0


def preferred(state: State, record: JobRecord) -> Preferred | None:
    """The nodes that a job prefers; None where it prefers none, or the cluster has none of them."""
    weights: dict[int, int] = {}
    for each in record.job.preferences:
        for node in members(state.fit.labelled(each.label, each.value)):
            weights[node] = weights.get(node, 0) + each.weight
    liked = [node for node in sorted(weights, key=lambda node: (-weights[node], node)) if weights[node] > 0]
    if not liked:
        return None
    slots = record.attempt.placement.slots if record.attempt is not None else ()
    names = [state.topology.nodes[node].name for node in liked]
    there = dict.fromkeys(names)
    return Preferred(len(names), tuple(names[:NAMED_MAX]), len(slots), sum(slot.node in there for slot in slots))
