"""The account of one queue: what it is allotted, has and draws on."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.queues import RESOURCES, Queue
from phalanx.policy.view import Usage

EVERY = range(len(RESOURCES))


GPUS = 0
"""The number of GPUs among the resources."""


UNBOUNDED = 1 << 62


class QueueAccount:
    """One queue of the tree, and what its jobs and those of the queues inside have.

    `drawn` is what they have of what it keeps and may borrow, with what is reserved (`withheld`) for one of them.
    """

    __slots__ = (
        "_within",
        "above",
        "borrowing",
        "borrows",
        "deserved",
        "drawn",
        "inside",
        "kept",
        "lendable",
        "limited",
        "path",
        "queue",
        "trail",
        "used",
        "withheld",
    )

    def __init__(self, queue: Queue, above: QueueAccount | None) -> None:
        self.path = queue.path
        self.queue = queue
        self.above = above
        self.inside: list[QueueAccount] = []
        self.lendable = tuple(resource for resource in EVERY if queue.deserved[resource] is not None)
        self.deserved = [amount or 0 for amount in queue.deserved]
        self.kept = [amount or 0 for amount in queue.guaranteed]
        self.used = [0] * len(RESOURCES)
        self.drawn = [0] * len(RESOURCES)
        self.withheld = [0] * len(RESOURCES)
        self.borrowing: dict[str, QueueAccount] = {}
        self.borrows = False
        self._within: tuple[QueueAccount, ...] | None = None
        own_limit = above is not None and any(limit is not None for limit in queue.limit)
        self.limited: bool = own_limit or (above is not None and above.limited)
        self.trail: tuple[QueueAccount, ...] = (*above.trail, self) if above is not None else (self,)
        if above is not None:
            above.inside.append(self)
            for resource in EVERY:
                # What a queue keeps is not kept a second time by the one it lies in.
                above.kept[resource] -= self.kept[resource]

    def use(self, what: Usage, sign: int) -> None:
        """Adds to what it has, or takes away, and sees whether it has more of anything than its nominal quota."""
        used, deserved, borrows = self.used, self.deserved, False
        for resource in EVERY:
            amount = what[resource]
            if amount:
                used[resource] += sign * amount
        for resource in self.lendable:
            if used[resource] > deserved[resource]:
                borrows = True
        if borrows is not self.borrows:
            self.borrows = borrows
            if self.above is not None and borrows:
                self.above.borrowing[self.path] = self
            elif self.above is not None:
                del self.above.borrowing[self.path]

    @property
    def borrows_beside(self) -> bool:
        """Whether any queue beside it has more of anything than its nominal quota."""
        return self.above is not None and len(self.above.borrowing) > self.borrows

    @property
    def within(self) -> tuple[QueueAccount, ...]:
        """Itself and all queues that lie in it, on all levels. A tree never changes, so they are found once."""
        if self._within is None:
            self._within = (self, *(each for queue in self.inside for each in queue.within))
        return self._within

    def upwards(self) -> Iterator[QueueAccount]:
        """Itself, the queues it lies in, and the whole."""
        return reversed(self.trail)

    def left(self, resource: int) -> int:
        """How much more it may take of what it and those it lies in keep, and of the pool, whatever its limits."""
        whole = self.trail[0]
        left = whole.deserved[resource] - (whole.queue.guaranteed[resource] or 0) - whole.drawn[resource]
        for each in self.trail[1:]:
            # Where quotas were reduced under running work the pool may lack something. What a queue keeps stays its
            # own.
            kept = each.kept[resource] - each.drawn[resource]
            left = (left if left > 0 else 0) + (kept if kept > 0 else 0)
        return left

    def has_room(self, need: Usage) -> bool:
        """Whether it would still be within its nominal quota."""
        return not [i for i in self.lendable if need[i] and self.used[i] + need[i] > self.deserved[i]]

    @property
    def nominal_left(self) -> list[int]:
        """What it may have more of each resource within its nominal quota."""
        left = [UNBOUNDED] * len(RESOURCES)
        for resource in self.lendable:
            left[resource] = self.deserved[resource] - self.used[resource]
        return left

    def below_limit(self, resource: int) -> int:
        """How much more of a resource it could have at most by its own limit."""
        limit = self.queue.limit[resource]
        return UNBOUNDED if limit is None else limit - self.used[resource]

    def kept_inside(self, resource: int) -> int:
        """What the queues inside keep for themselves: for queues outside it is as good as used."""
        return (self.queue.guaranteed[resource] or 0) - self.kept[resource]


def draw(account: QueueAccount, resource: int, amount: int) -> None:
    """Takes an amount of what a queue keeps, and what goes beyond that of the pool above it."""
    each: QueueAccount | None = account
    while each is not None and amount:
        # What is reserved is drawn on no queue further up.
        bound = each.kept[resource] + each.withheld[resource]
        before = max(each.drawn[resource] - bound, 0)
        each.drawn[resource] += amount
        amount = max(each.drawn[resource] - bound, 0) - before
        each = each.above
