"""Headroom: which requests a queue may have by its quota, and which of them it may reclaim, as masks.

A larger need is never allowed where a smaller one is not, so that of each queue and resource the most that is allowed
says it all. Queues that are guaranteed nothing and have no limits share one mask: that of the lendable quota.
"""

from __future__ import annotations

from phalanx.engine.pending.queue import QueueCandidates
from phalanx.engine.quota.account import EVERY, QueueAccount
from phalanx.engine.quota.quotas import Most
from phalanx.engine.state.requests import ALL, Requests
from phalanx.engine.state.state import State


class Headroom:
    """That of the queues as they are; what was worked out is void once any of them has more or less."""

    def __init__(self, state: State, requests: Requests) -> None:
        self.state = state
        self._requests = requests
        self._is_bounded = state.policy.bounds_jobs
        self._changes = -1
        self._lendable = 0
        self._affordable: dict[str, int] = {}
        self._most: dict[str, Most] = {}
        self._reclaimable: dict[str, tuple[int, bool]] = {}
        self._within: dict[tuple[int, ...], int] = {}
        self._most_reclaimable: dict[str, list[Most]] = {}
        self._spent: dict[str, bool] = {}

    def affordable(self, queue: QueueCandidates) -> int:
        """The requests that a queue may have."""
        self._catch_up()
        found = self._lendable
        if not queue.draws_on_all:
            known = self._affordable.get(queue.path)
            if known is None:
                known = self._affordable[queue.path] = self._requests_within(self.most(queue.path))
            found = known
        if self.state.quotas.budgets and self._is_spent(queue.path):
            found &= self._requests.without_gpus
        return found & self._allowed(queue) if self._is_bounded else found

    def most(self, path: str) -> Most:
        """The most that a queue may have more of each resource."""
        self._catch_up()
        found = self._most.get(path)
        if found is None:
            found = self._most[path] = self.state.quotas.allowed(path)
        return found

    def has_eased(self, queue: QueueCandidates) -> bool:
        """Whether a queue may have more of anything than when classes of it were refused that lacked quota.

        Of budgets, and of what a policy allows job by job, it is not known.
        """
        if queue.least is None or self._is_bounded or self.state.quotas.budgets:
            return True
        return any(now > least for now, least in zip(self.most(queue.path), queue.least, strict=True))

    def note_shortage(self, queue: QueueCandidates) -> None:
        """Takes note of what a queue may have while one of its classes is refused that lacks quota."""
        most = self.most(queue.path)
        queue.least = most if queue.least is None else list(map(min, most, queue.least))

    def reclaimable(self, queue: str) -> int:
        """The requests for which a queue may reclaim what others borrow."""
        self._catch_up()
        return self._reclaimable_by(self.state.quotas.accounts[queue])[0]

    def _reclaimable_by(self, account: QueueAccount) -> tuple[int, bool]:
        """Those of a queue, and whether one borrows beside it, or beside one that it lies in.

        As far as its own limit goes they are those of the queue around it, and with them what its nominal quota has
        left: what `Quotas.reclaimable` says, where queues share all that lies further out.
        """
        found = self._reclaimable.get(account.path)
        if found is not None:
            return found
        mask, is_lent = self._reclaimable_by(account.above) if account.above is not None else (0, False)
        is_lent = is_lent or account.borrows_beside
        if is_lent:
            if mask and account.limited:
                mask &= self._requests_within([account.below_limit(resource) for resource in EVERY])
            mask |= self._requests_within(account.nominal_left)
        self._reclaimable[account.path] = mask, is_lent
        return mask, is_lent

    def _requests_within(self, most: Most) -> int:
        """The requests that need no more than so much of each resource: of most queues it is what it was before."""
        key = tuple(most)
        found = self._within.get(key)
        if found is None:
            found = self._within[key] = self._requests.affordable(most)
        return found

    def most_reclaimable(self, queue: str) -> list[Most]:
        """What a queue may want of each resource at most to reclaim it: no more than any one of these."""
        self._catch_up()
        found = self._most_reclaimable.get(queue)
        if found is None:
            found = self._most_reclaimable[queue] = self.state.quotas.reclaimable(queue)
        return found

    def draws_on_all(self, path: str) -> bool:
        """Whether what a queue may have is what the cluster has left to lend: nothing is guaranteed or limited."""
        account = self.state.quotas.accounts[path]
        return not account.limited and not any(any(each.kept) for each in account.trail[1:])

    def _is_spent(self, path: str) -> bool:
        if path not in self._spent:
            state = self.state
            spent = state.quotas.spent_out(path, lambda each: state.spending.spent(each, state.now))
            self._spent[path] = spent is not None
        return self._spent[path]

    def _allowed(self, queue: QueueCandidates) -> int:
        """Class by class, where the policy bounds what jobs may have."""
        jobs, found = self.state.jobs, 0
        for pending in queue:
            if self.state.shortfall(jobs[pending.job]) is None:
                found |= pending.bit
        return found

    def _catch_up(self) -> None:
        quotas = self.state.quotas
        if self._changes != quotas.changes:
            self._changes = quotas.changes
            self._affordable.clear()
            self._most.clear()
            self._reclaimable.clear()
            self._most_reclaimable.clear()
            self._lendable = self._requests.affordable(quotas.pool()) if quotas else ALL
