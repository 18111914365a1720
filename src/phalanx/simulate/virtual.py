"""A backend in virtual time: starts and stops take as long as they are told to, and fail when they are told to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from phalanx.engine.action import Action, ActionId, Repartition, Resize, Resume, Start, Stop, Suspend
from phalanx.engine.event import AttemptEnded, Done, Event, Failed, Lost, Outcome

Fault = Callable[[Action], Event | None]


def no_fault(action: Action) -> Event | None:
    """Everything works."""
    return None


@dataclass(slots=True)
class _Run:
    attempt: int
    started_ms: int = -1


@dataclass(slots=True)
class VirtualBackend:
    """Runs jobs in virtual time. A job lasts as long as `durations_ms` says, from the moment all its tasks run.

    `fault` may answer an action with a `Failed` or `Lost` instead of carrying it out.
    """

    durations_ms: Mapping[str, int]
    start_ms: int = 0
    stop_ms: int = 0
    repartition_ms: int = 0
    resize_ms: int = 0
    fault: Fault = no_fault
    term: int = 0
    _runs: dict[str, _Run] = field(default_factory=dict)
    _newest: dict[str, int] = field(default_factory=dict)
    _seen: dict[ActionId, None] = field(default_factory=dict)
    _due: list[tuple[int, int, Event]] = field(default_factory=list)
    _count: int = 0

    def carry_out(self, action: Action, now: int) -> None:
        """Takes an action on; its answer is due after its delay."""
        if action.id in self._seen:
            return
        self._seen[action.id] = None
        refusal = self._fence(action.id) or self.fault(action)
        if refusal is not None:
            if isinstance(action, Start) and isinstance(refusal, Lost):
                # Nobody knows, but here it did happen: the stop that follows must find something to stop.
                self._runs[action.id.job] = _Run(action.id.attempt)
            self._at(now + (self.start_ms if isinstance(action, Start) else self.stop_ms), refusal)
            return
        match action:
            case Start():
                self._runs[action.id.job] = _Run(action.id.attempt)
                self._at(now + self.start_ms, Done(action.id))
            case Stop():
                self._runs.pop(action.id.job, None)
                self._at(now + min(self.stop_ms, action.grace_ms), Done(action.id))
            case Repartition():
                self._at(now + self.repartition_ms, Done(action.id))
            case Resize():
                self._at(now + self.resize_ms, Done(action.id))
            case Suspend() | Resume():
                self._at(now, Done(action.id))

    def _fence(self, action: ActionId) -> Event | None:
        newest = self._newest.get(action.job, 0)
        if action.term < self.term or action.attempt < newest:
            return Failed(action, f"term {self.term}, attempt {newest} is newer", retryable=False)
        self.term = action.term
        self._newest[action.job] = action.attempt
        return None

    def _at(self, at_ms: int, event: Event) -> None:
        heappush(self._due, (at_ms, self._count, event))
        self._count += 1

    def events(self, now: int) -> list[Event]:
        """What is due by now, in order."""
        happened: list[Event] = []
        while self._due and self._due[0][0] <= now:
            at_ms, _, event = heappop(self._due)
            if isinstance(event, Done):
                self._begin(event.action, at_ms)
            if isinstance(event, AttemptEnded) and not self._ends(event):
                continue
            happened.append(event)
        return happened

    def _begin(self, action: ActionId, now: int) -> None:
        """Once a start is done the job runs, and its end is known."""
        run = self._runs.get(action.job)
        duration_ms = self.durations_ms.get(action.job)
        if run is not None and run.attempt == action.attempt and run.started_ms < 0:
            run.started_ms = now
            if duration_ms is not None:
                self._at(now + duration_ms, AttemptEnded(action.job, action.attempt, Outcome.SUCCEEDED))

    def _ends(self, event: AttemptEnded) -> bool:
        run = self._runs.get(event.job)
        if run is None or run.attempt != event.attempt:
            return False
        del self._runs[event.job]
        return True

    def next_event_ms(self) -> int | None:
        """When the next event is due."""
        return self._due[0][0] if self._due else None
