"""The Backend protocol: what carries Actions out and reports Events. Everything that runs jobs implements it."""

from __future__ import annotations

from typing import Protocol

from phalanx.protocol.action import Action
from phalanx.protocol.event import Event


class Backend(Protocol):
    """Carries out actions and says what happens.

    An action is idempotent by its id: asked for twice it is done once. One of an older term, or for an older attempt
    than the newest known, is refused by a `Failed` event that is not retryable. Every action is answered, sooner or
    later, by `Done`, `Failed` or `Lost`; a `Failed` start leaves no task running and no device in use.
    """

    def carry_out(self, action: Action, now: int) -> None:
        """Takes an action on. Returns at once; the answer comes as an event."""

    def events(self, now: int) -> list[Event]:
        """What has happened up to `now` and was not yet reported, in order."""

    def next_event_ms(self) -> int | None:
        """When the next event is due, where that is known; None if nothing is under way or it cannot be known."""
