"""Accounting: the GPU time that attempts held in a span of time, summed up by user, queue or job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from sqlalchemy import Connection, Row, select

from phalanx.server.refusal import Refusal
from phalanx.server.store.jobs import in_queues
from phalanx.server.store.past import AT_ONCE, Size, gpus_of, sizes_of
from phalanx.server.store.tables import attempts, jobs, journal

ATTEMPTS_MAX = 200_000
"""More attempts than this in one span are not summed up while a caller waits."""

REPORTS_MAX = 100_000
"""Reports of progress that are read, the newest first."""

By = Literal["user", "queue", "job"]


class Span(NamedTuple):
    """From when to when, and of which queues, each with everything below it."""

    since_ms: int
    until_ms: int
    queues: Sequence[str]
    user: str = ""
    queue: str = ""


class _Busy(msgspec.Struct):
    gpu_busy: float = 0.0
    attempt: int = 0


class _Report(msgspec.Struct):
    body: _Busy


_report = msgspec.json.Decoder(_Report)


def usage(connection: Connection, span: Span, by: By) -> list[dict[str, Any]]:
    """GPU time by user, queue or job, the most first. What jobs report of how busy their GPUs are counts for them."""
    found = _attempts(connection, span)
    ids = list(dict.fromkeys(row.job for row in found if gpus_of(row.slots)))
    busy, sizes = _busy(connection, ids), sizes_of(connection, ids)
    sums: dict[str, dict[str, Any]] = {}
    named: dict[str, dict[str, None]] = {}
    for row in found:
        key = str(row.job if by == "job" else getattr(row, by))
        entry = sums.setdefault(key, _nothing(row, key, by))
        held_ms = _held_gpu_ms(row, sizes.get((row.job, row.number), []), span)
        share = busy.get((row.job, row.number))
        entry["gpu_ms"] += held_ms
        entry["lost_gpu_ms"] += row.lost_gpu_ms or 0
        entry["attempts"] += 1
        named.setdefault(key, {})[row.job] = None
        if share is not None:
            entry["reported_gpu_ms"] += held_ms
            entry["busy_gpu_ms"] += round(held_ms * share)
    ordered = sorted(sums.values(), key=lambda entry: (-entry["gpu_ms"], entry["key"]))
    return [{**entry, "jobs": len(named[entry["key"]])} for entry in ordered]


def _nothing(row: Row[Any], key: str, by: By) -> dict[str, Any]:
    zeros = dict.fromkeys(("attempts", "gpu_ms", "lost_gpu_ms", "reported_gpu_ms", "busy_gpu_ms"), 0)
    user, queue, name = (row.user, row.queue, row.name) if by == "job" else ("", "", "")
    return {"key": key, "name": name, "user": user, "queue": queue, "jobs": 0, **zeros}


def _attempts(connection: Connection, span: Span) -> Sequence[Row[Any]]:
    query = (
        select(
            *(attempts.c.job, attempts.c.number, attempts.c.started_ms, attempts.c.ended_ms),
            *(attempts.c.slots, attempts.c.lost_gpu_ms, jobs.c.user, jobs.c.queue, jobs.c.name),
        )
        .join(jobs, jobs.c.id == attempts.c.job)
        .where(attempts.c.started_ms < span.until_ms)
        .where(attempts.c.ended_ms.is_(None) | (attempts.c.ended_ms > span.since_ms))
        .where(in_queues(span.queues))
    )
    if span.user:
        query = query.where(jobs.c.user == span.user)
    if span.queue:
        query = query.where(in_queues([span.queue]))
    found: Sequence[Any] = connection.execute(query.limit(ATTEMPTS_MAX + 1)).all()
    if len(found) > ATTEMPTS_MAX:
        raise Refusal("invalid", f"more than {ATTEMPTS_MAX} attempts: ask for a shorter time, a user or a queue")
    return found


def _held_gpu_ms(row: Row[Any], earlier: Sequence[Size], span: Span) -> int:
    """The GPU time that an attempt held in the span, at the sizes that it had."""
    ended_ms = min(row.ended_ms or span.until_ms, span.until_ms)
    from_ms, held = row.started_ms, 0
    for until_ms, gpus in (*earlier, Size(ended_ms, gpus_of(row.slots))):
        held += gpus * max(min(until_ms, ended_ms) - max(from_ms, span.since_ms), 0)
        from_ms = until_ms
    return held


def _busy(connection: Connection, ids: list[str]) -> dict[tuple[str, int], float]:
    """How busy the GPUs of attempts were on average. One that never says more than 0 does not measure it."""
    sums: dict[tuple[str, int], tuple[float, int]] = {}
    for job, said in _reports(connection, ids):
        total, count = sums.get((job, said.attempt), (0.0, 0))
        sums[job, said.attempt] = (total + said.gpu_busy, count + 1)
    return {attempt: total / count for attempt, (total, count) in sums.items() if total}


def _reports(connection: Connection, ids: list[str]) -> Iterator[tuple[str, _Busy]]:
    left = REPORTS_MAX
    for at in range(0, len(ids), AT_ONCE):
        query = select(journal.c.job, journal.c.line).where(journal.c.job.in_(ids[at : at + AT_ONCE]))
        query = query.where(journal.c.type == "Progress").order_by(journal.c.seq.desc()).limit(left)
        for row in connection.execute(query):
            left -= 1
            yield row.job, _report.decode(row.line).body
        if left <= 0:
            return
