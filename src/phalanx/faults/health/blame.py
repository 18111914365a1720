"""Blame: whether it is jobs that fail, or the nodes that they run on.

A job counts once for each node, however often it is tried there. One that fails on nodes that have nothing in common is
at fault itself, and blames no node for a week. Jobs of one name and user, and members of one array, are one.
Counts decay, so that a node that was repaired is as good as any other after some weeks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import erfc, exp, sqrt
from typing import Any

DAY_MS = 86_400_000
JOBS_HALF_LIFE_MS, OWN_HALF_LIFE_MS = 7 * DAY_MS, 90 * DAY_MS
"""Jobs end many times a day; a node fails so seldom that a month of it must count."""

GUILTY_MS = 7 * DAY_MS
JOBS_MAX = 20_000
LEAST = 0.01


@dataclass(slots=True)
class Decayed:
    """A sum in which what is a half-life old counts half."""

    half_life_ms: int = JOBS_HALF_LIFE_MS
    value: float = 0.0
    at_ms: int = 0

    def add(self, amount: float, now: int) -> None:
        """Adds an amount at a moment."""
        self.value, self.at_ms = self.of(now) + amount, now

    def of(self, now: int) -> float:
        """The sum at a moment."""
        return float(self.value * 0.5 ** (max(now - self.at_ms, 0) / self.half_life_ms))


@dataclass(slots=True)
class NodeBook:
    """What happened on one node: jobs that ended, those it is blamed for, what of these was found while they ran, and
    failures of its own.
    """

    jobs: Decayed = field(default_factory=Decayed)
    blamed: dict[str, Decayed] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    own: Decayed = field(default_factory=lambda: Decayed(OWN_HALF_LIFE_MS))

    def blame(self, job: str, part: float, now: int) -> None:
        """A job has failed here, or on one of several nodes; what is long past counts no more."""
        for old in [name for name, each in self.blamed.items() if each.of(now) < LEAST]:
            del self.blamed[old]
            self.found.pop(old, None)
        self.blamed[job] = Decayed(value=part, at_ms=now)

    def failures(self, now: int) -> float:
        """Failures of jobs that count against the node."""
        return sum(each.of(now) for each in self.blamed.values())

    def found_now(self) -> list[str]:
        """What jobs that it is blamed for have found here, each once."""
        return list(dict.fromkeys(what for job, what in self.found.items() if job in self.blamed))


@dataclass(frozen=True, slots=True)
class Evidence:
    """Failures of jobs of so many, and of the node itself, each with what was to be expected and how likely it is."""

    failures: float
    jobs: float
    expected: float
    chance: float
    own: float
    own_expected: float
    own_chance: float


@dataclass(slots=True)
class Blame:
    """The books of all nodes, what stands in all of them together, and jobs that are at fault themselves. `accused` are
    the nodes in whose books any failure was written.
    """

    books: dict[str, NodeBook]
    jobs: Decayed = field(default_factory=Decayed)
    failed: Decayed = field(default_factory=Decayed)
    own: Decayed = field(default_factory=lambda: Decayed(OWN_HALF_LIFE_MS))
    failed_on: dict[str, frozenset[str]] = field(default_factory=dict)
    guilty: dict[str, int] = field(default_factory=dict)
    accused: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Iterable[str]) -> Blame:
        """Books in which nothing stands."""
        return cls({node: NodeBook() for node in nodes})

    def ended(self, job: str, nodes: frozenset[str], failed: bool, now: int) -> None:
        """A job has ended on nodes. Which of several was the cause is not known, so that each has its part."""
        known = nodes & self.books.keys()
        for node in known:
            self.books[node].jobs.add(1.0, now)
            self.jobs.add(1.0, now)
        if failed and not self.is_guilty(job, now):
            self._failed(job, known, now)

    def found(self, job: str, node: str, what: str, now: int) -> None:
        """A job has found something amiss on one of its nodes. It counts as if the job had failed there alone, once
        however often it says so. One that accuses nodes that have nothing in common is at fault itself.
        """
        if node not in self.books or self.is_guilty(job, now):
            return
        book = self.books[node]
        if job not in book.blamed:
            book.jobs.add(1.0, now)
            self.jobs.add(1.0, now)
        self._failed(job, frozenset([node]), now)
        if job in book.blamed:
            book.found[job] = what

    def is_guilty(self, job: str, now: int) -> bool:
        """Whether a job has failed of late on nodes that have nothing in common."""
        since_ms = self.guilty.get(job)
        return since_ms is not None and now - since_ms < GUILTY_MS

    def _failed(self, job: str, nodes: frozenset[str], now: int) -> None:
        before = self.failed_on.pop(job, nodes)
        for node in before & self.books.keys():
            self._take_back(self.books[node], job, now)
        common = before & nodes
        for node in (before - common) & self.books.keys():
            self.books[node].found.pop(job, None)
        if not common:
            self.guilty.pop(job, None)
            self.guilty[job] = now
            _shorten(self.guilty)
            return
        # The cause lies in what all its failures have in common.
        self.failed_on[job] = common
        _shorten(self.failed_on)
        for node in common & self.books.keys():
            self.books[node].blame(job, 1.0 / len(common), now)
            self.accused[node] = None
            self.failed.add(1.0 / len(common), now)

    def _take_back(self, book: NodeBook, job: str, now: int) -> None:
        blamed = book.blamed.pop(job, None)
        if blamed is not None:
            self.failed.add(-blamed.of(now), now)

    def broke(self, node: str, now: int) -> None:
        """A node has failed by itself."""
        if node in self.books:
            self.books[node].own.add(1.0, now)
            self.accused[node] = None
            self.own.add(1.0, now)

    def forget(self, node: str, now: int) -> None:
        """Begins the book of a node anew, as after a repair."""
        book = self.books.get(node)
        if book is not None:
            self.jobs.add(-book.jobs.of(now), now)
            self.failed.add(-book.failures(now), now)
            self.own.add(-book.own.of(now), now)
            self.books[node] = NodeBook()
            self.accused.pop(node, None)

    def follow(self, nodes: Iterable[str], now: int) -> None:
        """These are the nodes from now on."""
        present = dict.fromkeys(nodes)
        for node in [node for node in self.books if node not in present]:
            self.forget(node, now)
            del self.books[node]
        for node in present:
            self.books.setdefault(node, NodeBook())

    def evidence(self, node: str, now: int) -> Evidence:
        """What speaks against a node, beside what all others lead one to expect of it."""
        book, others = self.books[node], len(self.books) - 1
        failures, jobs, own = book.failures(now), book.jobs.of(now), book.own.of(now)
        # Half a failure more than was seen: of nodes on which nothing ever failed one would else expect none at all.
        rate = (max(self.failed.of(now) - failures, 0.0) + 0.5) / (max(self.jobs.of(now) - jobs, 0.0) + 2.0)
        expected, own_expected = rate * jobs, (max(self.own.of(now) - own, 0.0) + 0.5) / (others + 1.0)
        return Evidence(failures, jobs, expected, tail(failures, expected), own, own_expected, tail(own, own_expected))


def _shorten(known: dict[str, Any]) -> None:
    """Forgets what was learned first of too many jobs."""
    if len(known) > JOBS_MAX:
        del known[next(iter(known))]


def tail(count: float, expected: float) -> float:
    """The chance of so many or more where so many are expected: a Poisson tail. Decayed counts are rounded."""
    whole = int(count + 0.5)
    if expected > 500:
        return 0.5 * erfc((whole - 0.5 - expected) / sqrt(2 * expected))
    term = total = exp(-expected)
    for number in range(1, whole):
        term *= expected / number
        total += term
    return max(1 - total, 0.0) if whole else 1.0
