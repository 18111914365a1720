"""The equivalence classes of pending jobs by queue: kept as jobs are enqueued and dequeued.

It follows from the State's classes and is no part of the State. A State that was read anew, or in which something is
supposed, builds it again when a decision first needs it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from phalanx.engine.state.records import OVERDUE, EquivalenceClass, JobRecord
from phalanx.engine.state.requests import Requests
from phalanx.placement.fit import Fit
from phalanx.policy.policy import Minds

SPARE_MAX = 256
"""Requests of which nothing is pending any more beyond which numbers are given out anew."""


class QueueClasses:
    """The classes of one queue by the number of their request: the mask of all, and of those whose first job is past
    its max_wait.
    """

    __slots__ = ("by_number", "late", "mask", "queue")

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.mask = 0
        self.late = 0
        self.by_number: dict[int, EquivalenceClass] = {}


class ClassIndex:
    """The classes of all queues. Where the queue of a job does not matter, all are in one queue without a name."""

    def __init__(self, fit: Fit, minds: Minds) -> None:
        self.by_queue = minds is Minds.QUEUES
        self.requests = Requests(fit)
        self.queues: dict[str, QueueClasses] = {}
        self._places: dict[EquivalenceClass, tuple[QueueClasses, int]] = {}

    def queue_of(self, record: JobRecord) -> str:
        """The queue among whose classes a job is."""
        return record.job.queue if self.by_queue else ""

    def number_of(self, waiting: EquivalenceClass) -> int:
        """The number of the request of a class."""
        return self._places[waiting][1]

    def enqueue(self, waiting: EquivalenceClass, record: JobRecord) -> None:
        """Takes note that a class has a job more."""
        if waiting in self._places:
            self._note(waiting)
        else:
            self.add(waiting, record)

    def dequeue(self, waiting: EquivalenceClass) -> None:
        """Takes note that a class has a job less; without any it is none."""
        if waiting.jobs:
            self._note(waiting)
        else:
            self._remove(waiting)

    def add(self, waiting: EquivalenceClass, record: JobRecord) -> None:
        """Takes in a class with its first job."""
        queue, shape = self.queue_of(record), record.shape
        assert isinstance(shape, tuple), "a shape is made by shape_of"
        key: Hashable = (shape[0][1:], *shape[1:]) if self.by_queue else shape
        classes = self.queues.get(queue)
        if classes is None:
            classes = self.queues[queue] = QueueClasses(queue)
        number = self.requests.number(key, record)
        self._places[waiting] = classes, number
        classes.mask |= 1 << number
        classes.by_number[number] = waiting
        self._note(waiting)

    def _remove(self, waiting: EquivalenceClass) -> None:
        """Takes out a class of which no job is pending any more."""
        classes, number = self._places.pop(waiting)
        classes.mask &= ~(1 << number)
        classes.late &= ~(1 << number)
        del classes.by_number[number]
        if not classes.by_number:
            del self.queues[classes.queue]

    def _note(self, waiting: EquivalenceClass) -> None:
        """Takes note that a class has another first job."""
        classes, number = self._places[waiting]
        if waiting.jobs[0][0][0] == OVERDUE:
            classes.late |= 1 << number
        else:
            classes.late &= ~(1 << number)

    @property
    def is_sparse(self) -> bool:
        """Whether most requests that have numbers are not pending any more."""
        return len(self.requests.every) > SPARE_MAX + 2 * len(self._places)


def index_of(fit: Fit, minds: Minds, classes: Iterable[EquivalenceClass], jobs: dict[str, JobRecord]) -> ClassIndex:
    """The index of classes that there are."""
    index = ClassIndex(fit, minds)
    for waiting in classes:
        index.add(waiting, jobs[waiting.jobs[0][1]])
    return index
