"""Backends of the live server: beyond the engine's protocol they wake the loop and take over what already runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from phalanx.backends.capability import Offer
from phalanx.engine.backend import Backend
from phalanx.engine.state.records import AttemptRecord, Phase
from phalanx.engine.state.state import State
from phalanx.protocol.action import Action


@dataclass(frozen=True, slots=True)
class Adopted:
    """An attempt that the State believes to hold devices, and what it was asked for without an answer so far.

    `incarnation` is that of the store under which it was begun; `next_seq` the number that the next action for it gets.
    """

    job: str
    attempt: int
    in_flight: tuple[Action, ...] = ()
    incarnation: str = ""
    next_seq: int = 1 << 30


@dataclass(frozen=True, slots=True)
class FoundAttempt:
    """An attempt that a restored store does not know. `found_by` is the incarnation of the store that found it; it
    `ran` if it had to be ended then. `outcome` and `reason` tell how it ended; `path` has its logs.
    """

    id: str
    job: str
    attempt: int
    incarnation: str
    queue: str
    user: str
    found_ms: int
    found_by: str
    ran: bool
    outcome: str
    reason: str
    path: str


def _before(job: str, attempt: int) -> str:
    return ""


def _all_known(job: str) -> int | None:
    return 1 << 30


def _forgotten(found: FoundAttempt) -> None:
    """Drops what was found."""


@dataclass(frozen=True, slots=True)
class History:
    """What the store knows of attempts, for a backend that may have more of them than that.

    `incarnation` is that of the store under which an attempt begins, `attempts` how many of a job were asked for, None
    for an unknown job. With `restored` the store was restored from a backup: a backend ends, and tells `found`, what
    the store does not know, before it adopts the rest.
    """

    present: str = ""
    incarnations: frozenset[str] = frozenset({""})
    incarnation: Callable[[str, int], str] = _before
    attempts: Callable[[str], int | None] = _all_known
    restored: bool = False
    found: Callable[[FoundAttempt], None] = _forgotten


class LiveBackend(Backend, Protocol):
    """A backend that works between the calls of the loop."""

    wake: Callable[[], None]
    """Called from any thread when `events` has something new."""

    def adopt(self, attempts: Iterable[Adopted], now: int) -> None:
        """Takes over after a restart, once, before the first turn.

        What runs goes on; what ended meanwhile is reported; actions in flight are carried out if they were not, and
        answered; what runs here and belongs to no attempt of these is ended. After a restore (`History`) it is ended
        with notice and its grace, and this waits for its end: its devices are given away next.
        """

    def offer(self) -> Offer:
        """What this backend can do here."""

    def close(self) -> None:
        """Lets go. Whatever runs goes on running."""


def adoptable(state: State, incarnation_at: Callable[[int], str] = lambda _: "") -> tuple[Adopted, ...]:
    """The attempts of a State that a backend was asked to start and that have not ended, suspended ones too."""
    kept = tuple(
        Adopted(record.job.id, record.kept.attempt, (), incarnation_at(record.kept.created_ms), record.kept.next_seq)
        for record in (state.jobs[job] for job in state.kept)
        if record.kept is not None and (record.attempt is None or not _is_asked_for(record.attempt))
    )
    return kept + tuple(
        Adopted(
            attempt.job.id,
            attempt.number,
            tuple(attempt.in_flight[seq] for seq in sorted(attempt.in_flight)),
            incarnation_at(attempt.created_ms),
            attempt.next_seq,
        )
        for attempt in state.attempts()
        if _is_asked_for(attempt)
    )


def attempts_asked_for(state: State, job: str) -> int | None:
    """How many attempts of a job a backend was asked to start; None for an unknown job."""
    record = state.jobs.get(job)
    if record is None:
        return None
    is_claimed_only = record.attempt is not None and not _is_asked_for(record.attempt)
    return record.attempts - is_claimed_only


def _is_asked_for(attempt: AttemptRecord) -> bool:
    return attempt.phase is not Phase.CLAIMED or bool(attempt.in_flight)
