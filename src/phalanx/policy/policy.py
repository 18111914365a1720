"""Policies: who goes next, who may pass a head that waits, and who makes room. Composed of plain functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from phalanx.policy.view import JobView, RunView

Memory = dict[str, Any]
Key = tuple[int, ...]
Order = Callable[[JobView], Key]
Backfill = Callable[[JobView, JobView], bool]
Victims = Callable[[JobView, RunView], bool]
Observe = Callable[[Memory, object, int], None]
Wakeup = Callable[[Mapping[str, Any], int], int | None]


def by_submission(job: JobView) -> Key:
    """First come, first served."""
    return (job.submitted_ms, job.number)


def never(head: JobView, job: JobView) -> bool:
    """Nobody passes a head that waits."""
    return False


def always(head: JobView, job: JobView) -> bool:
    """Whoever fits may pass."""
    return True


def nobody(head: JobView, victim: RunView) -> bool:
    """Nobody is stopped for another."""
    return False


def remember_nothing(memory: Memory, event: object, now: int) -> None:
    """For policies whose order depends on nothing that happens."""


def no_wakeup(memory: Mapping[str, Any], now: int) -> int | None:
    """For policies whose order changes only with events."""
    return None


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy names only what it changes.

    `order` gives the key by which waiting jobs claim capacity, least first. `backfill(head, job)` says whether a job
    may pass a head that does not fit. `victims(head, run)` says whether a running attempt may be stopped for a head;
    which of those are, the engine works out: the set that loses the least work. It is asked once for all attempts of a
    queue and priority. `observe` folds events into the policy's memory, and `next_wakeup` says when its order changes
    without any event.
    """

    name: str
    order: Order = by_submission
    backfill: Backfill = always
    victims: Victims = nobody
    observe: Observe = remember_nothing
    next_wakeup: Wakeup = no_wakeup
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def spec(self) -> str:
        """The policy as it is written on a command line: name:key=value,…"""
        given = ",".join(f"{key}={value}" for key, value in self.parameters.items())
        return f"{self.name}:{given}" if given else self.name
