"""fair-tree: Slurm's Fair Tree. At every level of the tree the queue that has used least for its shares goes first.

Among the queues that lie in one queue, level fairshare is LF = S / U: S is a queue's part of their weights, U its part
of the GPU time they have had, decayed. The tree is walked depth first by it, so that all that lies in a queue with a
higher LF goes before all that lies in one with a lower LF, whatever they have used themselves. Queues of equal LF are
taken together: what lies in them is sorted as if it lay in one (Cox and Morrison, Slurm User Group Meeting 2014).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from phalanx.cluster.queues import ancestors
from phalanx.policy.about import About
from phalanx.policy.backfill import reserve_of
from phalanx.policy.factor import Measure
from phalanx.policy.fair import ONE, by_priority
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Key, Policy, Reserve
from phalanx.policy.survey import Survey
from phalanx.policy.view import Moment, Usage

HAS_NONE_INSIDE, HAS_OTHERS_INSIDE = 0, 1
"""Of two that are equal at a level, one with none inside goes first: its key ends there."""

MS_PER_HOUR = 3_600_000
PRECISION = 10**9
"""Levels that differ by less than one part of this are equal."""


def fair_tree(parameters: Parameters) -> Policy:
    """After `half_life` what a queue has used counts half; `backfill` says for which jobs a time is reserved."""
    reserve = reserve_of(parameters)
    half_life_ms = parameters.duration_ms("half_life", "7d")
    levels = Survey(uses_for_shares)

    def level_order(path: str, usage: Usage, at: Moment) -> Key:
        # Where the cluster describes no queues their names say what lies in what.
        return (levels(at)[path],) if at.queue(path) is not None else place(path, levels(at))

    return Policy(
        "fair-tree",
        order=by_priority,
        level_order=level_order,
        measures=level_fairshare,
        reserve=reserve,
        half_life_ms=half_life_ms,
        parameters=parameters.given,
        about=replace(ABOUT, foresight=reserve is not Reserve.NOBODY),
    )


def level_fairshare(path: str, usage: Usage, at: Moment) -> tuple[Measure, ...]:
    """What the level fairshare of a queue comes from: LF = S / U, without end for one that has used nothing."""
    outside = path.rpartition("/")[0]
    beside = _inside(at.queues()).get(outside, (path,))
    weight, weights = (at.queue(path) or ONE).weight, sum((at.queue(each) or ONE).weight for each in beside)
    spent, whole = at.spent_gpu_ms(path), at.spent_gpu_ms(outside)
    share, used = weight / weights, spent / whole if whole else 0.0
    return (
        Measure("share", share),
        Measure("used", used),
        Measure("decayed_gpu_hours", spent / MS_PER_HOUR),
        Measure("level_fs", share / used if used else None),
    )


def place(queue: str, levels: Mapping[str, int]) -> Key:
    """Where a queue comes in the walk through the tree: U / S at every level from the outside to the inside."""
    key: Key = (levels[queue], HAS_NONE_INSIDE)
    for path in above(queue):
        key = (levels[path], HAS_OTHERS_INSIDE, *key)
    return key


def fairshares(at: Moment) -> dict[str, float]:
    """The fairshare factor of every queue: its rank from the end of the walk over how many there are; 1 is the first.

    Equals share the better rank, and the ranks they take up are not given to other queues. A queue is also equal to the
    first that lies in a neighbour of the same level fairshare.
    """
    levels = uses_for_shares(at)
    places = {queue: place(queue, levels) for queue in at.queues()}
    walk = sorted(places, key=places.__getitem__)
    found: dict[str, float] = {}
    rank = len(walk)
    for number, queue in enumerate(walk):
        if number and not _ties(places[walk[number - 1]], places[queue]):
            rank = len(walk) - number
        found[queue] = rank / len(walk)
    return found


def uses_for_shares(at: Moment) -> dict[str, int]:
    """U / S of every queue among those beside it: 0 has used nothing, PRECISION what its share is."""
    found: dict[str, int] = {}
    for outside, paths in _inside(at.queues()).items():
        weights = [(at.queue(path) or ONE).weight for path in paths]
        spent = at.spent_gpu_ms(outside)
        rate = PRECISION * sum(weights) / spent if spent else 0.0
        for path, weight in zip(paths, weights, strict=True):
            found[path] = round(rate * at.spent_gpu_ms(path) / weight) if rate else 0
    return found


def _ties(before: Key, place: Key) -> bool:
    return before[:-1] == place[: len(before) - 1]


@lru_cache(maxsize=1 << 16)
def above(queue: str) -> tuple[str, ...]:
    """The queues that a queue lies in, from the inside to the outside, but for the whole."""
    return tuple(ancestors(queue))[1:-1]


@lru_cache(maxsize=16)
def _inside(queues: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    """The queues that lie in each queue, and in the whole."""
    found: dict[str, dict[str, None]] = {}
    for queue in queues:
        for path in (queue, *above(queue)):
            found.setdefault(path.rpartition("/")[0], {})[path] = None
    return {path: tuple(inside) for path, inside in found.items()}


ABOUT = About(
    summary="the queue that has used least for its shares, level by level",
    algorithm="Fair Tree",
    decides_by="GPU time that queues have used, decayed, then priority",
    dimensions="spatial and temporal",
    preemption="only to give back what a queue deserves",
    starvation="no queue starves; low priorities in one may",
    source="Cox and Morrison, Slurm User Group Meeting 2014",
)
