"""Fair shares: what of the cluster falls to each queue, given what they want, own and weigh, in whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from phalanx.cluster.queues import Queue
from phalanx.policy.factor import Measure
from phalanx.policy.view import Moment, Usage
from phalanx.policy.wants import wants_of

SATURATION = 10**6
"""A queue that has all that falls to it is this saturated."""

FREE_FOR_ALL = Queue("")
"""What is assumed of queues where the cluster describes none."""


class Claim(NamedTuple):
    """What a queue brings to the division of one resource: what is its own before anything is shared, its weight."""

    wants: int
    own: int
    weight: int
    priority: int
    most: int | None


Shares = Mapping[str, Usage]
Claimed = Callable[[Queue, Usage, int], Claim]
"""The claim of a queue that wants so much, to a resource."""


def divide(amount: int, claims: Sequence[Claim]) -> list[int]:
    """What falls to each: first what is its own, then of what is left its part by weight, the higher priority first.

    No queue gets more than it wants or may have; what one leaves goes to the rest (water filling).
    """
    bounds = [claim.wants if claim.most is None else min(claim.wants, claim.most) for claim in claims]
    shares = [min(claim.own, bound) for claim, bound in zip(claims, bounds, strict=True)]
    left = max(amount - sum(shares), 0)
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        unmet = [i for i, claim in enumerate(claims) if claim.priority == priority and shares[i] < bounds[i]]
        while unmet and left:
            weights = sum(claims[i].weight for i in unmet)
            parts = {i: min(left * claims[i].weight // weights, bounds[i] - shares[i]) for i in unmet}
            if not any(parts.values()):
                break
            for i, part in parts.items():
                shares[i] += part
            left -= sum(parts.values())
            unmet = [i for i in unmet if shares[i] < bounds[i]]
    return shares


class FairShares:
    """What falls to every queue of the tree at a moment, worked out once for all that is asked then."""

    def __init__(self, claim: Claimed) -> None:
        self._claim = claim
        self._known: tuple[object, ...] = ()
        self._at: Moment | None = None
        self._memory: Mapping[str, object] | None = None
        self._whole: Queue | None = None
        self._shares: Shares = {}

    def __call__(self, at: Moment) -> Shares:
        """By path; to a queue in which no job asks for anything, nothing falls."""
        # A change of the tree makes the queue of the whole anew; a supposition, the memory.
        whole = at.queue("")
        known = (at.memory.get("version"), at.total, len(at.queues()))
        is_known = at is self._at and at.memory is self._memory and whole is self._whole
        if not is_known or known != self._known:
            self._shares = self._divided(at)
            self._at, self._memory, self._whole, self._known = at, at.memory, whole, known
        return self._shares

    def _divided(self, at: Moment) -> Shares:
        if at.queue("") is None:
            return self._among(at.total, at.queues(), at)
        shares: dict[str, Usage] = {"": at.total}
        inner = [""]
        while inner:
            path = inner.pop()
            inside = at.inside(path)
            shares.update(self._among(shares[path], inside, at))
            inner += [each for each in inside if at.inside(each)]
        return shares

    def _among(self, amount: Usage, paths: Sequence[str], at: Moment) -> dict[str, Usage]:
        queues = [at.queue(path) or FREE_FOR_ALL for path in paths]
        wants = [wants_of(at.memory, path) for path in paths]
        by_resource = [
            divide(of_all, [self._claim(queue, want, resource) for queue, want in zip(queues, wants, strict=True)])
            for resource, of_all in enumerate(amount)
        ]
        return {path: Usage(*(shares[i] for shares in by_resource)) for i, path in enumerate(paths)}


def saturation(usage: Usage, share: Usage) -> int:
    """How much a queue has of what falls to it: the most of all resources."""
    return max(used * SATURATION // max(part, 1) for used, part in zip(usage, share, strict=True))


def measures_of(usage: Usage, share: Usage) -> tuple[Measure, ...]:
    """What a queue has of GPUs, what falls to it, and of all resources the most that it has of that."""
    return (
        Measure("gpus", usage.gpu_permille / 1000),
        Measure("fair_share_gpus", share.gpu_permille / 1000),
        Measure("of_fair_share", saturation(usage, share) / SATURATION if any(share) or not any(usage) else None),
    )


def fits_in(usage: Usage, need: Usage, share: Usage) -> bool:
    """Whether a queue would still have no more than falls to it of what is needed."""
    return all(used + more <= part for used, more, part in zip(usage, need, share, strict=True) if more)


def exceeds(usage: Usage, need: Usage, share: Usage) -> bool:
    """Whether a queue has more than falls to it of anything that is needed: one with too many CPUs keeps its GPUs."""
    return any(used > part for used, more, part in zip(usage, need, share, strict=True) if more)


def may_give(path: str, side: str, need: Usage, shares: Shares, at: Moment) -> bool:
    """Whether a queue, and each it lies in up to its side, has more than falls to it of anything that is needed.

    Were it only the side, a queue inside could be taken below its share, and reclaim that of those beside it.
    """
    while exceeds(at.usage(path), need, shares[path]):
        if path == side:
            return True
        path = path.rpartition("/")[0]
    return False


def sides(path: str, other: str, at: Moment) -> tuple[str, str]:
    """Where two queues, or those they lie in, lie side by side; where the cluster describes none, all do."""
    return (path, other) if at.queue("") is None else _sides_in_tree(path, other)


@lru_cache(maxsize=1 << 16)
def _sides_in_tree(path: str, other: str) -> tuple[str, str]:
    mine, theirs = path.split("/"), other.split("/")
    level = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), len(mine) - 1)
    return "/".join(mine[: level + 1]), "/".join(theirs[: level + 1])
