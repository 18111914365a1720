"""Quotas: what each queue has, may still have, and could reclaim. The arithmetic of borrowing in a tree.

The rule is Kueue's. What a queue uses beyond what it keeps for itself is drawn from what the queue it lies in keeps.
This goes on to the pool of the whole cluster, which has what no queue keeps. A queue may take what all these have left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.queues import RESOURCES, settled
from phalanx.engine.quota.account import EVERY, GPUS, UNBOUNDED, QueueAccount, draw
from phalanx.engine.quota.shortfall import QueueCeiling, Shortfall
from phalanx.policy.view import Usage

Most = list[int]
"""The most of each resource."""


class Quotas:
    """The tree of a cluster's queues. Where the cluster has none, everything is allowed.

    `changes` counts how often any queue got more or less.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.accounts: dict[str, QueueAccount] = {}
        self.changes = 0
        self._rooms: dict[tuple[str, Usage], list[tuple[QueueAccount, bool]]] = {}
        self._rooms_since = 0
        self.budgets = any(queue.budget_gpu_ms is not None for queue in cluster.queues)
        self.reclaims_in_time = any(queue.min_run_reclaim_ms is not None for queue in cluster.queues)
        if cluster.queues:
            for path, queue in sorted(settled(cluster.queues, cluster.total).items()):
                above = None if not path else self.accounts[queue.parent]
                self.accounts[path] = QueueAccount(queue, above)

    def __bool__(self) -> bool:
        return bool(self.accounts)

    def leaves(self) -> list[str]:
        """The queues to which jobs can be submitted."""
        return [path for path, account in self.accounts.items() if path and not account.inside]

    def use(self, path: str, what: Usage, sign: int) -> None:
        """Adds to what a queue has (1), or takes away (-1)."""
        self.changes += 1
        account = self.accounts[path]
        for each in account.trail:
            each.use(what, sign)
        for resource in EVERY:
            if what[resource]:
                draw(account, resource, sign * what[resource])

    def withhold(self, amounts: Iterable[tuple[str, int]], resource: int, sign: int) -> None:
        """Reserves so much of what queues may draw (1), or frees it (-1). No queue uses it, so that none borrows by
        that, and what queues around these may have is as it was.
        """
        self.changes += 1
        for path, amount in amounts:
            account = self.accounts[path]
            account.drawn[resource] += sign * amount
            account.withheld[resource] += sign * amount

    def left_below(self, short: Shortfall) -> list[tuple[str, int]]:
        """What a queue that is short of a limit may still have, by the queues that it is drawn on, up to that limit."""
        found, amount, resource = [], short.left, short.resource
        for each in self.accounts[short.queue].upwards():
            if amount <= 0 or each.above is None:
                break
            found.append((each.path, amount))
            amount -= max(each.kept[resource] - each.drawn[resource], 0)
            if each.path == short.at:
                break
        return found

    def shortfall(self, path: str, need: Usage) -> Shortfall | None:
        """What keeps a queue from having so much more; None if nothing does."""
        account = self.accounts[path]
        if account.limited:
            for resource in EVERY:
                if need[resource] and (short := self._over_limit(path, resource, need[resource])) is not None:
                    return short
        for resource in EVERY:
            if need[resource]:
                left = account.left(resource)
                if need[resource] > left:
                    return Shortfall(path, "", resource, need[resource], left)
        return None

    def over_limits(self, path: str, need: Usage) -> list[Shortfall]:
        """Of each resource the limit that keeps a queue from having so much more, where one does."""
        if not self.accounts[path].limited:
            return []
        found = (self._over_limit(path, resource, need[resource]) for resource in EVERY if need[resource])
        return [short for short in found if short is not None]

    def limits_exceeded(self, path: str, need: Usage) -> list[str]:
        """All queues, from the inside out, whose limits keep a queue from having so much more."""
        found = (short.at for resource in EVERY for short in self._over_limits(path, resource, need[resource]))
        exceeded = dict.fromkeys(found)
        return [each.path for each in self.accounts[path].upwards() if each.path in exceeded]

    def _over_limit(self, path: str, resource: int, asked: int) -> Shortfall | None:
        """The first limit on the way up that is exceeded by what gets there."""
        return next(self._over_limits(path, resource, asked), None)

    def _over_limits(self, path: str, resource: int, asked: int) -> Iterator[Shortfall]:
        """The limits on the way up that are exceeded by what gets there: what queues keep is drawn before."""
        reaching = asked
        for each in self.accounts[path].upwards():
            limit = each.queue.limit[resource]
            if limit is not None and each.above is not None:
                left = limit - each.kept_inside(resource) - each.drawn[resource]
                if reaching > left:
                    yield Shortfall(path, each.path, resource, asked, asked - reaching + left, by_limit=True)
            reaching -= max(each.kept[resource] - each.drawn[resource], 0)
            if reaching <= 0:
                break

    def allowed(self, path: str) -> Most:
        """The most that a queue may have more of each resource now: of what exceeds it, `shortfall` says so."""
        return [self._allowed(path, resource) for resource in EVERY]

    def pool(self) -> Most:
        """What the pool of the whole cluster has left of each resource."""
        return [max(self.accounts[""].left(resource), 0) if self.accounts else 0 for resource in EVERY]

    def _allowed(self, path: str, resource: int) -> int:
        most, kept = UNBOUNDED, 0
        for each in self.accounts[path].upwards():
            if each.above is None:
                return min(most, kept + max(each.left(resource), 0))
            limit = each.queue.limit[resource]
            if limit is not None:
                # What is kept further in does not reach this limit.
                most = min(most, kept + max(limit - each.kept_inside(resource) - each.drawn[resource], 0))
            kept += max(each.kept[resource] - each.drawn[resource], 0)
        return most

    def spent_out(self, path: str, spent: Callable[[str], int]) -> str | None:
        """The queue, it or one it lies in, whose budget of GPU time is used up; None if none is."""
        for each in self.accounts[path].upwards():
            budget = each.queue.budget_gpu_ms
            if budget is not None and spent(each.path) >= 1000 * budget:
                return each.path
        return None

    def upper_bound(self, path: str, resource: int) -> int:
        """The most that a queue could ever have of a resource, if no other had more than is guaranteed to it."""
        most, kept = self.accounts[""].deserved[resource], 0
        for each in self.accounts[path].upwards():
            limit = each.queue.limit[resource] if each.above is not None else each.deserved[resource]
            if limit is not None:
                most = min(most, limit - each.kept_inside(resource) + kept)
            kept += each.kept[resource]
        return most

    def upper_bounds(self, path: str, resource: int) -> list[QueueCeiling]:
        """What sets the upper bound, the least first: its limit, those of queues it lies in, the whole cluster."""
        found: list[QueueCeiling] = []
        others: list[tuple[str, int]] = []
        inner: QueueAccount | None = None
        for each in self.accounts[path].upwards():
            beside = [other for other in each.inside if other is not inner] if inner is not None else []
            others += ((other.path, kept) for other in beside if (kept := other.queue.guaranteed[resource] or 0))
            limit = each.queue.limit[resource] if each.above is not None else each.deserved[resource]
            if limit is not None:
                found.append(QueueCeiling(each.path, limit, tuple(others)))
            inner = each
        return sorted(found, key=lambda bound: bound.most)

    def least_run_ms(self, path: str, other: str) -> int:
        """How long a job of another queue runs at least before it yields to one of a queue.

        KAI's rule: where the two queues, or those they lie in, lie side by side, the other side says how long, or else
        the nearest around it that does.
        """
        sides = self._sides(path, other) if self.reclaims_in_time else None
        if sides is not None:
            for each in sides[1].upwards():
                if each.queue.min_run_reclaim_ms is not None:
                    return each.queue.min_run_reclaim_ms
        return self.accounts[other].queue.min_run_ms

    def least_runs_ms(self, path: str) -> list[int]:
        """All that `least_run_ms` can come to for the jobs of a queue, but 0."""
        account = self.accounts[path]
        found = [each.queue.min_run_reclaim_ms or 0 for each in account.trail] if self.reclaims_in_time else []
        return [least_ms for least_ms in dict.fromkeys((account.queue.min_run_ms, *found)) if least_ms]

    def borrows(self, path: str) -> bool:
        """Whether a queue, or one it lies in, has more of anything than its nominal quota."""
        found = False
        for each in self.accounts[path].trail:
            found = found or each.borrows
        return found

    def would_borrow(self, path: str, need: Usage) -> bool:
        """Whether a queue, or one it lies in, would exceed its nominal quota with so much more."""
        return not all(each.has_room(need) for each in self.accounts[path].trail[1:])

    def may_reclaim(self, path: str, need: Usage) -> bool:
        """Whether a queue, or one it lies in, would stay within its nominal quota with so much more, while a queue
        beside that one, or beside one further out, borrows.

        A queue further out may exceed its nominal quota by what queues inside it borrow. These are beside one further
        in, so that they give that back as well: then it has headroom, since nominal quotas inside sum up to no more.
        """
        return any(has_room and each.borrows_beside for each, has_room in self._with_room(path, need))

    def deserves_more(self, path: str, need: Usage) -> bool:
        """Whether a queue, or one it lies in, would stay within its nominal quota with so much more, whatever the
        limits further in, while a queue beside that one borrows: else it `reclaims` from none.
        """
        return any(each.borrows_beside and each.has_room(need) for each in self.accounts[path].trail[1:])

    def reclaimable(self, path: str) -> list[Most]:
        """What a queue could want of each resource at most so that it `may_reclaim`: no more than any one of these.

        They are the headroom of the queue and of those it lies in, as far out as a queue beside one of them borrows,
        each as far as the limits further in go.
        """
        found: list[Most] = []
        borrowed_of = 0
        below_limits = [UNBOUNDED] * len(RESOURCES)
        for each in self.accounts[path].trail[:0:-1]:
            found.append(list(map(min, below_limits, each.nominal_left)))
            if each.borrows_beside:
                borrowed_of = len(found)
            below_limits = [min(left, each.below_limit(resource)) for resource, left in enumerate(below_limits)]
        return found[:borrowed_of]

    def _with_room(self, path: str, need: Usage) -> list[tuple[QueueAccount, bool]]:
        """A queue and those it lies in, and whether it or one further in would be within its nominal quota with so much
        more. What is beyond a limit further in does not get there. Every running job may be asked about with the same.
        """
        if self._rooms_since != self.changes:
            self._rooms_since = self.changes
            self._rooms.clear()
        found = self._rooms.get((path, need))
        if found is None:
            found = self._rooms[path, need] = []
            has_room, is_limited = False, False
            for each in self.accounts[path].trail[:0:-1]:
                has_room = has_room or (not is_limited and each.has_room(need))
                found.append((each, has_room))
                is_limited = is_limited or any(need[i] > each.below_limit(i) for i in EVERY if need[i])
        return found

    def borrowers_for(self, path: str, need: Usage) -> Iterator[QueueAccount]:
        """The queues from which one may reclaim with so much more: those that borrow beside it, or beside one
        it lies in, from where it has headroom. `could_reclaim` is true of queues in these, and of no more.
        """
        for each, has_room in self._with_room(path, need):
            borrowing = each.above.borrowing if has_room and each.above is not None else {}
            # Not as they began to borrow: what a decision tries and undoes must not change what the next one finds.
            for other in map(borrowing.__getitem__, sorted(borrowing)):
                if other is not each and self._borrows_what_lacks(other, path, need):
                    yield other

    def could_reclaim(self, path: str, need: Usage, other: str) -> bool:
        """Whether a queue may reclaim from another, once those further in have given back what they borrow."""
        sides = self._sides(path, other)
        if sides is None or not self._returns(path, need, other, sides[1]):
            return False
        return any(has_room for each, has_room in self._with_room(path, need) if each is sides[0])

    def reclaims(self, path: str, need: Usage, other: str) -> bool:
        """Whether a queue may reclaim from another: that borrows where both lie side by side, and it would not.

        The sides are the two queues, or those they lie in, under the nearest queue that holds both. What lies in its
        own side may exceed its nominal quota there: that is between those inside.
        """
        sides = self._sides(path, other)
        if sides is None or not sides[0].has_room(need):
            return False
        return self._returns(path, need, other, sides[1])

    def _returns(self, path: str, need: Usage, other: str, side: QueueAccount) -> bool:
        """Whether a queue has to give back what its side borrows and another lacks."""
        return side.borrows and self._gives_back(path, need, other, side)

    def nearness(self, path: str, other: str) -> int:
        """How many queues hold both of two, the whole among them: the more, the further in they meet."""
        both = zip(self.accounts[path].trail, self.accounts[other].trail, strict=False)
        return sum(mine is theirs for mine, theirs in both)

    def _borrows_what_lacks(self, side: QueueAccount, path: str, need: Usage) -> bool:
        """Whether a side has more than its nominal quota of what a queue may not have enough of; of GPUs, if it may
        have enough of all that is asked for, but not where it lies. A queue that borrows CPUs alone keeps its nominal
        GPUs.
        """
        borrowed = [i for i in side.lendable if need[i] and side.used[i] > side.deserved[i]]
        if not borrowed or len(side.lendable) == 1:
            return bool(borrowed)
        lacking = [i for i in EVERY if need[i] > self._allowed(path, i)]
        if not lacking:
            return borrowed[0] == GPUS or not need[GPUS]
        return any(i in lacking for i in borrowed)

    def _gives_back(self, path: str, need: Usage, other: str, side: QueueAccount) -> bool:
        """Inside a side that borrows, queues give that borrow themselves: there is one, since the nominal quotas inside
        sum up to no more than that of the queue around them.
        """
        for each in self.accounts[other].upwards():
            if not each.queue.reclaimable or not self._borrows_what_lacks(each, path, need):
                return False
            if each is side:
                break
        return True

    def _sides(self, path: str, other: str) -> tuple[QueueAccount, QueueAccount] | None:
        """Where two queues, or those they lie in, lie side by side; None if one is or holds the other."""
        for mine, theirs in zip(self.accounts[path].trail, self.accounts[other].trail, strict=False):
            if mine is not theirs:
                return mine, theirs
        return None

    def fingerprint(self) -> tuple[object, ...]:
        """All that is true of the tree, for comparing two moments."""
        return tuple(
            (path, *account.used, *account.drawn, len(account.borrowing)) for path, account in self.accounts.items()
        )

    def take_over(self, usages: Iterable[tuple[str, Usage]]) -> None:
        """Takes on what queues have, when quotas change under running work."""
        for path, usage in usages:
            if path in self.accounts:
                self.use(path, usage, 1)
