"""Kueue's rule for borrowing in a tree of queues, worked out from scratch at every question.

As its proposal for hierarchical cohorts has it: T of a queue is its quota less what it uses; T of a queue with others
inside is its own quota and, of each inside, T, but no more than that may lend. A use is allowed if afterwards no T on
the way up is below what may be borrowed there, and that of the whole is not below 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class RefQueue:
    """One queue for one resource, with every quota said; `limit` None is none."""

    guaranteed: int = 0
    deserved: int = 0
    limit: int | None = None
    inside: dict[str, RefQueue] = field(default_factory=dict)


def uses(queue: RefQueue, path: str, used: Mapping[str, int]) -> int:
    """What a queue and all inside it use."""
    if not queue.inside:
        return used.get(path, 0)
    return sum(uses(each, below(path, name), used) for name, each in queue.inside.items())


def unpreempt(queue: RefQueue, path: str, used: Mapping[str, int]) -> int:
    """T: what is left of a queue's quota and of what those inside lend it; below 0 it borrows."""
    if not queue.inside:
        return queue.deserved - used.get(path, 0)
    own = queue.deserved - sum(each.deserved for each in queue.inside.values())
    lent = (
        min(each.deserved - each.guaranteed, unpreempt(each, below(path, name), used))
        for name, each in queue.inside.items()
    )
    return own + sum(lent)


def allows(whole: RefQueue, path: str, used: Mapping[str, int], more: int) -> bool:
    """Whether a queue may use so much more."""
    after = {**used, path: used.get(path, 0) + more}
    queue, at = whole, ""
    if unpreempt(whole, "", after) < 0:
        return False
    for name in path.split("/"):
        queue, at = queue.inside[name], below(at, name)
        if queue.limit is not None and unpreempt(queue, at, after) < queue.deserved - queue.limit:
            return False
    return True


def below(path: str, name: str) -> str:
    """The path of a queue inside another."""
    return f"{path}/{name}" if path else name
