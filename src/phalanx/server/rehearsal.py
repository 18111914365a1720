"""A backend for rehearsals: jobs take their place and their time, and nothing runs.

It lets a cluster that is not there be operated for real: the API, the accounts, the page and the policies are the live
ones. A job lasts as long as it says, over all its attempts; one that says nothing runs until it is cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from phalanx.backends.capability import Capability, Offer
from phalanx.backends.live import Adopted
from phalanx.protocol.action import Action, Start, Stop
from phalanx.protocol.event import AttemptEnded, Done, Event, Outcome
from phalanx.workload.job import Job

Due = tuple[int, int, Event, tuple[str, int]]
"""When, in which order, what, and about which attempt."""


def _wake_nothing() -> None:
    """Wakes nothing: what is due is told by `next_event_ms`."""


SHOWN = (
    Capability.ADOPT,
    Capability.RESIZE,
    Capability.SUSPEND,
    Capability.TURNS,
    Capability.FRACTION,
    Capability.MPS,
    Capability.MIG,
)
"""What of a plan can be rehearsed."""


def rehearsal_offer() -> Offer:
    """What a rehearsal can show."""
    lacks = {each: "nothing runs in a rehearsal" for each in Capability if each not in SHOWN}
    return Offer("rehearsal", "jobs take their place and their time, and nothing runs", lacks, real_nodes=())


class RehearsalBackend:
    """Answers every action at once, and ends attempts when their time has come."""

    def __init__(self, jobs: Callable[[str], Job], executed_ms: Callable[[str], int]) -> None:
        self._jobs = jobs
        self._executed_ms = executed_ms
        self._due: list[Due] = []
        self._count = 0
        self._newest: dict[str, tuple[int, int]] = {}
        self._starting: set[tuple[str, int]] = set()
        self._over: set[tuple[str, int]] = set()
        self.wake: Callable[[], None] = _wake_nothing

    def carry_out(self, action: Action, now: int) -> None:
        """Takes an action on; one that was taken on before is known."""
        _, job, attempt, seq = action.id
        if (attempt, seq) <= self._newest.get(job, (0, -1)):
            return
        self._newest[job] = (attempt, seq)
        self._at(now, Done(action.id), (job, attempt))
        match action:
            case Start():
                self._starting.add((job, attempt))
            case Stop():
                self._starting.discard((job, attempt))
                self._over.add((job, attempt))

    def _end_in_time(self, job: str, attempt: int, now: int) -> None:
        duration_ms = self._jobs(job).duration_ms
        if duration_ms is not None:
            left_ms = max(duration_ms - self._executed_ms(job), 0)
            self._at(now + left_ms, AttemptEnded(job, attempt, Outcome.SUCCEEDED), (job, attempt))

    def _at(self, at_ms: int, event: Event, attempt: tuple[str, int]) -> None:
        heappush(self._due, (at_ms, self._count, event, attempt))
        self._count += 1

    def events(self, now: int) -> list[Event]:
        """What is due by now, in order."""
        happened: list[Event] = []
        while self._due and self._due[0][0] <= now:
            _, _, event, attempt = heappop(self._due)
            if isinstance(event, AttemptEnded):
                if attempt in self._over:
                    self._over.discard(attempt)
                    continue
                self._newest.pop(event.job, None)
            elif attempt in self._starting:
                self._starting.discard(attempt)
                self._end_in_time(*attempt, now)
            happened.append(event)
        return happened

    def next_event_ms(self) -> int | None:
        """When the next event is due."""
        return self._due[0][0] if self._due else None

    def adopt(self, attempts: Iterable[Adopted], now: int) -> None:
        """Goes on after a restart."""
        for adopted in attempts:
            for action in adopted.in_flight:
                self.carry_out(action, now)
            if not adopted.in_flight:
                self._end_in_time(adopted.job, adopted.attempt, now)

    def offer(self) -> Offer:
        """What a rehearsal can show."""
        return rehearsal_offer()

    def close(self) -> None:
        """Nothing to let go of."""
