"""Places for questions: how many are answered at a time, how many of one user, and which user is next."""

from __future__ import annotations

from collections import Counter, deque
from typing import Generic, TypeVar

Item = TypeVar("Item")

WAITING_MAX = 16
"""Questions of one user that may wait for a place."""


class Places(Generic[Item]):
    """Places of one kind. A user has a share of them at most; users with fewer at work go first, else in turn."""

    def __init__(self, count: int, of_one_user: int) -> None:
        self._count = count
        self._of_one_user = of_one_user
        self._waiting: dict[str, deque[Item]] = {}
        self._at_work: Counter[str] = Counter()

    def wait(self, user: str, item: Item) -> bool:
        """Has an item wait for a place; False if its user has too many that wait."""
        waiting = self._waiting.setdefault(user, deque())
        if len(waiting) >= WAITING_MAX:
            return False
        waiting.append(item)
        return True

    def take(self) -> Item | None:
        """The item that gets a place now, if there is one."""
        if self._at_work.total() >= self._count:
            return None
        users = [user for user in self._waiting if self._at_work[user] < self._of_one_user]
        if not users:
            return None
        user = min(users, key=self._at_work.__getitem__)
        waiting = self._waiting.pop(user)
        item = waiting.popleft()
        if waiting:
            # Behind all other users: the one that had its turn comes last.
            self._waiting[user] = waiting
        self._at_work[user] += 1
        return item

    def leave(self, user: str) -> None:
        """Frees a place of a user."""
        self._at_work[user] -= 1
        if not self._at_work[user]:
            del self._at_work[user]
