"""Looking up the past: the phases and sizes of a job's attempts, what there was on a node, and what launchers found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, select

from phalanx.server.store.jobs import attempts_of
from phalanx.server.store.tables import attempt_sizes, attempts, findings, job_phases, jobs, node_attempts, node_healths

PHASES_MAX = 5_000
"""Phases of a job that are looked at: one that is resized every minute for days has more, and the newest are shown."""


AT_ONCE = 500
"""Jobs that one query asks for."""


FINDINGS_MAX = 50
"""Findings that are shown of an attempt or a node, the newest."""

FINDINGS_OF_JOB_MAX = 500


class _Slot(msgspec.Struct):
    devices: list[int]


_slots = msgspec.json.Decoder(list[_Slot])


class Size(NamedTuple):
    """The GPUs that an attempt held until a moment."""

    until_ms: int
    gpus: int


class PhaseChange(NamedTuple):
    """An attempt came to a phase."""

    number: int
    at_ms: int
    phase: str


class Stay(NamedTuple):
    """An attempt that had, or has, devices of a node."""

    job: str
    number: int
    name: str
    queue: str
    user: str
    phase: str
    created_ms: int
    started_ms: int | None
    ended_ms: int | None
    outcome: str | None


class Run(NamedTuple):
    """An attempt with its job, the nodes it had, and when it is expected to end."""

    job: str
    name: str
    queue: str
    number: int
    submitted_ms: int
    created_ms: int
    started_ms: int | None
    ended_ms: int | None
    expected_end_ms: int | None
    outcome: str | None
    nodes: str


class HealthChange(NamedTuple):
    """A node came to a health."""

    at_ms: int
    health: str
    reason: str


def phases_of(connection: Connection, job: str) -> list[PhaseChange]:
    """The phases that attempts at a job came to, as far as `attempts` does not tell, in the order of time."""
    columns = (job_phases.c.number, job_phases.c.at_ms, job_phases.c.phase)
    newest_first = (job_phases.c.number.desc(), job_phases.c.at_ms.desc())
    found = connection.execute(
        select(*columns).where(job_phases.c.job == job).order_by(*newest_first).limit(PHASES_MAX)
    )
    return [PhaseChange(*row) for row in reversed(found.all())]


def gpus_of(slots: str) -> int:
    """The GPUs of an attempt, by its slots as the store keeps them."""
    return sum(len(slot.devices) for slot in _slots.decode(slots))


def sizes_of(connection: Connection, ids: Sequence[str]) -> dict[tuple[str, int], list[Size]]:
    """The sizes that attempts of jobs had before their last one, in the order of time."""
    sizes: dict[tuple[str, int], list[Size]] = {}
    for at in range(0, len(ids), AT_ONCE):
        query = select(attempt_sizes).where(attempt_sizes.c.job.in_(ids[at : at + AT_ONCE]))
        for row in connection.execute(query.order_by(attempt_sizes.c.seq)):
            sizes.setdefault((row.job, row.number), []).append(Size(row.until_ms, row.gpus))
    return sizes


def stays_on(connection: Connection, node: str, until_ms: int, limit: int) -> list[Stay]:
    """The newest attempts that had devices of a node before a moment, in the order of time."""
    there = (node_attempts.c.node == node) & (node_attempts.c.created_ms < until_ms)
    about: tuple[Any, ...] = (jobs.c.name, jobs.c.queue, jobs.c.user)
    times = (attempts.c.phase, attempts.c.created_ms, attempts.c.started_ms, attempts.c.ended_ms, attempts.c.outcome)
    found = connection.execute(
        select(attempts.c.job, attempts.c.number, *about, *times)
        .select_from(node_attempts)
        .join(attempts, (attempts.c.job == node_attempts.c.job) & (attempts.c.number == node_attempts.c.number))
        .join(jobs, jobs.c.id == attempts.c.job)
        .where(there)
        .order_by(node_attempts.c.created_ms.desc())
        .limit(limit)
    )
    # One that was resized may have come to a node more than once.
    return list({(row.job, row.number): Stay(*row) for row in reversed(found.all())}.values())


def runs_between(connection: Connection, since_ms: int, until_ms: int, queue: str, limit: int) -> list[Run]:
    """The attempts that had devices between two moments, of a queue with those inside if one is named, newest first."""
    about: tuple[Any, ...] = (jobs.c.name, jobs.c.queue, attempts.c.number, jobs.c.submitted_ms)
    times = (attempts.c.created_ms, attempts.c.started_ms, attempts.c.ended_ms, jobs.c.expected_end_ms)
    # Which they are is found by their keys: to put all attempts in order with their nodes takes twice as long.
    found = (
        select(attempts.c.job, attempts.c.number)
        .where(attempts.c.created_ms < until_ms)
        .where(attempts.c.ended_ms.is_(None) | (attempts.c.ended_ms > since_ms))
    )
    if queue:
        inside = (jobs.c.queue == queue) | jobs.c.queue.startswith(f"{queue}/", autoescape=True)
        found = found.join(jobs, jobs.c.id == attempts.c.job).where(inside)
    newest = found.order_by(attempts.c.created_ms.desc()).limit(limit).subquery()
    query = (
        select(attempts.c.job, *about, *times, attempts.c.outcome, attempts.c.nodes)
        .join(newest, (newest.c.job == attempts.c.job) & (newest.c.number == attempts.c.number))
        .join(jobs, jobs.c.id == attempts.c.job)
        .order_by(attempts.c.created_ms.desc())
    )
    return [Run(*row) for row in connection.execute(query)]


def healths_of(connection: Connection, node: str, limit: int) -> list[HealthChange]:
    """What became of the health of a node, the newest last."""
    columns = (node_healths.c.at_ms, node_healths.c.health, node_healths.c.reason)
    found = connection.execute(
        select(*columns).where(node_healths.c.node == node).order_by(node_healths.c.seq.desc()).limit(limit)
    )
    return [HealthChange(*row) for row in reversed(found.all())]


def findings_of(connection: Connection, job: str) -> dict[int, list[dict[str, Any]]]:
    """What launchers found at the attempts at a job, by the attempt, the newest last."""
    found: dict[int, list[dict[str, Any]]] = {}
    for each in _findings(connection, findings.c.job == job, FINDINGS_OF_JOB_MAX):
        found.setdefault(each["attempt"], []).append(each)
    return {attempt: told[-FINDINGS_MAX:] for attempt, told in found.items()}


def attempts_with_findings(connection: Connection, job: str) -> list[dict[str, Any]]:
    """All attempts at a job, the oldest first, each with what its launcher found."""
    found = findings_of(connection, job)
    return [{**attempt, "findings": found.get(attempt["number"], [])} for attempt in attempts_of(connection, job)]


def findings_on(connection: Connection, node: str) -> list[dict[str, Any]]:
    """What launchers found on a node, the newest last."""
    return _findings(connection, findings.c.node == node, FINDINGS_MAX)


def _findings(connection: Connection, about: ColumnElement[bool], limit: int) -> list[dict[str, Any]]:
    found = connection.execute(select(findings).where(about).order_by(findings.c.seq.desc()).limit(limit))
    return [_finding(row) for row in reversed(found.all())]


def _finding(row: Row[Any]) -> dict[str, Any]:
    return {
        "at_ms": row.at_ms,
        "job": row.job,
        "attempt": row.number,
        "kind": row.kind,
        "task": row.task,
        "node": row.node,
        "rank": row.rank if row.rank >= 0 else None,
        "device": row.device if row.device >= 0 else None,
        "text": row.text,
    }
