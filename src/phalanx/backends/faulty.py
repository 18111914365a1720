"""A shim between engine and backend that loses, doubles, delays and reorders what passes through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from phalanx.engine.backend import Backend
from phalanx.protocol.action import Action
from phalanx.protocol.event import Event

Passed = TypeVar("Passed", Action, Event)
Match = Callable[[Passed], bool]
Bend = Callable[[Passed], list[Passed]]


def untouched(passed: Passed) -> list[Passed]:
    """Lets it pass as it is."""
    return [passed]


def losing(match: Match[Passed], times: int = 1) -> Bend[Passed]:
    """Loses the first few that match."""
    lost = 0

    def bend(passed: Passed) -> list[Passed]:
        nonlocal lost
        if lost < times and match(passed):
            lost += 1
            return []
        return [passed]

    return bend


def doubling(match: Match[Passed]) -> Bend[Passed]:
    """Has everything that matches pass twice."""
    return lambda passed: [passed, passed] if match(passed) else [passed]


class Holding:
    """Keeps what matches back, to be let pass later."""

    def __init__(self, match: Match[Action]) -> None:
        self.held: list[Action] = []
        self._match = match

    def __call__(self, action: Action) -> list[Action]:
        if self._match(action):
            self.held.append(action)
            return []
        return [action]


class FaultyBackend:
    """A backend behind a bad line."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.bend_action: Bend[Action] = untouched
        self.bend_event: Bend[Event] = untouched
        self.carried_out: list[Action] = []

    def carry_out(self, action: Action, now: int) -> None:
        """Hands on what is left of an action."""
        for each in self.bend_action(action):
            self.carried_out.append(each)
            self.inner.carry_out(each, now)

    def events(self, now: int) -> list[Event]:
        """What is left of what has happened."""
        return [each for event in self.inner.events(now) for each in self.bend_event(event)]

    def next_event_ms(self) -> int | None:
        """When the next event is due."""
        return self.inner.next_event_ms()
