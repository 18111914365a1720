"""Counting pending jobs, by queue and reason."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, func, select

from phalanx.server.store import settings
from phalanx.server.store.jobs import reason_of
from phalanx.server.store.tables import classes, jobs

WAITING = ("waiting", "suspended")


class Waiting(NamedTuple):
    """Jobs of a queue that wait for one reason: how many, their GPUs, and the one that was submitted first."""

    queue: str
    reason: str
    jobs: int
    gpus: int
    oldest_ms: int
    example: str


def waiting(connection: Connection) -> list[Waiting]:
    """The pending jobs, in groups."""
    head = (settings.get(connection, "head") or b" ").decode().split(" ")[1]
    counted = (
        select(
            jobs.c.queue,
            jobs.c.wait_reason,
            jobs.c.shape,
            func.count().label("members"),
            func.sum(jobs.c.gpus).label("gpus"),
            func.min(jobs.c.submitted_ms).label("oldest_ms"),
            func.min(jobs.c.number).label("first"),
        )
        .where(jobs.c.state.in_(WAITING))
        .group_by(jobs.c.queue, jobs.c.wait_reason, jobs.c.shape)
        .subquery()
    )
    found = connection.execute(
        select(counted, classes.c.verdict, jobs.c.id)
        .select_from(counted)
        .join(jobs, jobs.c.number == counted.c.first)
        .outerjoin(classes, classes.c.shape == counted.c.shape)
    )
    return [
        Waiting(row.queue, reason, row.members, int(row.gpus), row.oldest_ms, row.id)
        for row in found
        if (reason := reason_of(row._mapping, head)) is not None
    ]
