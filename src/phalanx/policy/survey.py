"""Surveys: what is true of all queues at a moment, worked out once for all jobs that are looked at then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from phalanx.cluster.queues import Queue
from phalanx.policy.view import Moment

T = TypeVar("T")


class Survey(Generic[T]):
    """A function of what queues have used, and of the tree they form, that remembers its latest answer.

    What queues have used up to a moment is certain in that moment, so an answer holds until time passes, the tree is
    another, or a job names a new queue.
    """

    def __init__(self, make: Callable[[Moment], T]) -> None:
        self._make = make
        self._at: Moment | None = None
        self._now = 0
        self._whole: Queue | None = None
        self._count = 0
        self._answer: T

    def __call__(self, at: Moment) -> T:
        """The answer for a moment."""
        # A change of the tree makes the queue of the whole anew.
        whole, count = at.queue(""), len(at.queues())
        if at is not self._at or at.now != self._now or whole is not self._whole or count != self._count:
            self._answer = self._make(at)
            self._at, self._now, self._whole, self._count = at, at.now, whole, count
        return self._answer
