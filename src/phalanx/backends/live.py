"""Backends of the live server: beyond the engine's protocol they wake the loop and take over what already runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from phalanx.backends.capability import Offer
from phalanx.engine.action import Action
from phalanx.engine.backend import Backend
from phalanx.engine.records import Phase
from phalanx.engine.state import State


@dataclass(frozen=True, slots=True)
class Adopted:
    """An attempt that the State believes to hold devices, and what it was asked for without an answer so far."""

    job: str
    attempt: int
    in_flight: tuple[Action, ...] = ()


class LiveBackend(Backend, Protocol):
    """A backend that works while nobody looks."""

    wake: Callable[[], None]
    """Called from any thread when `events` has something new."""

    def adopt(self, attempts: Iterable[Adopted], now: int) -> None:
        """Takes over after a restart, once, before the first turn.

        What runs goes on; what ended meanwhile is reported; actions in flight are carried out if they were not, and
        answered; what runs here and belongs to no attempt of these is ended.
        """

    def offer(self) -> Offer:
        """What this backend can do here."""

    def close(self) -> None:
        """Lets go. Whatever runs goes on running."""


def adoptable(state: State) -> tuple[Adopted, ...]:
    """The attempts of a State that a backend was asked to start and that have not ended."""
    return tuple(
        Adopted(attempt.job.id, attempt.number, tuple(attempt.in_flight[seq] for seq in sorted(attempt.in_flight)))
        for attempt in state.attempts()
        if attempt.phase is not Phase.CLAIMED or attempt.in_flight
    )
