"""The starts that submitters were told, in the store, and how far off they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, select

from phalanx.server.store.tables import jobs, start_forecasts

TOLERANCE_MS = 60_000
TOLERANCE_PART = 10
"""A start is as it was told within a minute, or within a tenth of the wait that was told where that is more."""


OUTCOMES = ("kept", "late", "early")


class Receipt(NamedTuple):
    """A start that was told and came: how much later it was, or earlier if negative, and whether that is `kept`."""

    queue: str
    policy: str
    error_ms: int
    outcome: str


def keep_told_start(connection: Connection, job: str, told_start_ms: int, policy: str, at_ms: int) -> bool:
    """Keeps the start that a submitter was told; False if one was told before, which stays."""
    if connection.execute(select(start_forecasts.c.job).where(start_forecasts.c.job == job)).first() is not None:
        return False
    row = {"job": job, "told_start_ms": told_start_ms, "policy": policy, "at_ms": at_ms}
    connection.execute(insert(start_forecasts).values(row))
    return True


class ToldStart(NamedTuple):
    """A start that a submitter was told, at `at_ms`, and the real one, if it has come."""

    job: str
    name: str
    queue: str
    policy: str
    at_ms: int
    told_start_ms: int
    started_ms: int | None

    @property
    def error_ms(self) -> int | None:
        """How much later it was than told, or earlier if negative."""
        return None if self.started_ms is None else self.started_ms - self.told_start_ms

    @property
    def outcome(self) -> str | None:
        """Whether it came as it was told."""
        return None if self.error_ms is None else outcome_of(self.error_ms, self.told_start_ms - self.at_ms)

    def shown(self) -> dict[str, Any]:
        """With how far off it was."""
        return {**self._asdict(), "error_ms": self.error_ms, "outcome": self.outcome}


TOLD_MAX = 20_000


def told_starts(connection: Connection, since_ms: int) -> list[ToldStart]:
    """The starts that were told of the newest jobs since a moment, the newest first."""
    told = start_forecasts.c
    query = (
        select(
            *(jobs.c.id, jobs.c.name, jobs.c.queue, told.policy, told.at_ms, told.told_start_ms, jobs.c.started_ms),
        )
        .join(jobs, jobs.c.id == told.job)
        .where(told.at_ms >= since_ms)
    )
    return [ToldStart(*row) for row in connection.execute(query.order_by(jobs.c.number.desc()).limit(TOLD_MAX))]


def receipts(connection: Connection) -> Iterator[Receipt]:
    """Of all jobs that have started since a start was told."""
    told = start_forecasts.c
    found = connection.execute(
        select(jobs.c.queue, told.policy, told.told_start_ms, told.at_ms, jobs.c.started_ms)
        .join(jobs, jobs.c.id == told.job)
        .where(jobs.c.started_ms.is_not(None))
    )
    for queue, policy, told_start_ms, at_ms, started_ms in found:
        error_ms = started_ms - told_start_ms
        yield Receipt(queue, policy, error_ms, outcome_of(error_ms, told_start_ms - at_ms))


def outcome_of(error_ms: int, told_wait_ms: int) -> str:
    """Whether a start came as it was told: kept, late or early."""
    if abs(error_ms) <= max(TOLERANCE_MS, told_wait_ms // TOLERANCE_PART):
        return "kept"
    return "late" if error_ms > 0 else "early"
