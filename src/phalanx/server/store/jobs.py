"""Looking jobs up in the view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Column, ColumnElement, Connection, Row, Table, and_, func, or_, select, true
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.visitors import InternalTraversal

from phalanx.engine.state.records import JobState, StopReason
from phalanx.protocol.reason import Reason
from phalanx.server.store import settings
from phalanx.server.store.tables import attempts, classes, job_labels, job_queues, jobs, journal, start_forecasts

FINAL = ("succeeded", "failed", "cancelled")
LIVE = tuple(state.value for state in JobState if state.value not in FINAL)
LASTING = (Reason.NEVER_FITS.value, Reason.QUOTA.value, Reason.BUDGET.value)
"""Reasons that hold for a job wherever it is in the order."""


NO_PROGRESS: dict[str, Any] = {
    "attempt": 0,
    "step": 0,
    "samples_per_s": 0.0,
    "durable_step": 0,
    "stop_cost_ms": 0,
    "gpu_busy": 0.0,
    "memory_gb": 0.0,
    "metrics": {},
}
"""What a report of progress says, where it says nothing: the journal leaves that out."""

COUNTED_MAX = 20_000
"""Jobs that are counted to find what to look them up by: a millisecond's worth."""


class Filters(NamedTuple):
    """Which jobs to list. `queues` are those that may be seen at all, each with everything below it."""

    queues: Sequence[str]
    states: Sequence[str] = ()
    queue: str = ""
    user: str = ""
    name: str = ""
    kind: str = ""
    array_of: str = ""
    label: tuple[str, str] | None = None


class Page(NamedTuple):
    """Where a list goes on: from a job on (not with it), in which direction, at most how many."""

    after: int | None
    newest_first: bool
    limit: int


def in_subtree(queue: str) -> ColumnElement[bool]:
    """Jobs of a queue and of all below it. '0' is the character behind '/'."""
    if not queue:
        return true()
    return or_(jobs.c.queue == queue, and_(jobs.c.queue > f"{queue}/", jobs.c.queue < f"{queue}0"))


def page(connection: Connection, filters: Filters, where: Page) -> tuple[list[dict[str, Any]], int | None]:
    """One page of jobs, as all users see them, and the place after which the next begins, if there may be more."""
    query, number = _selected(), jobs.c.number
    query = query.where(in_queues(filters.queues))
    terms = _terms(filters)
    leader = _leader(connection, terms)
    for term in terms:
        if term is not leader:
            query = query.where(term.beside)
        elif term.table is jobs:
            query = query.where(term.first)
        else:
            number = term.table.c.number
            query = query.join(term.table, number == jobs.c.number).where(term.first)
    if where.after is not None:
        query = query.where(number < where.after if where.newest_first else number > where.after)
    query = query.order_by(number.desc() if where.newest_first else number).limit(where.limit)
    rows = connection.execute(query).all()
    return items(connection, rows), rows[-1].number if len(rows) == where.limit else None


class _Term(NamedTuple):
    """One thing that is asked of jobs: as an index finds them (in which table), and as each is looked at."""

    table: Table
    first: ColumnElement[bool]
    beside: ColumnElement[bool]


def _terms(filters: Filters) -> list[_Term]:
    columns = (
        (jobs.c.name, filters.name),
        (jobs.c.array_of, filters.array_of),
        (jobs.c.user, filters.user),
        (jobs.c.kind, filters.kind),
    )
    terms = [_Term(jobs, column == wanted, _Unindexed(column) == wanted) for column, wanted in columns if wanted]
    if filters.label is not None:
        key, value = filters.label
        terms.append(_term_of(job_labels, (job_labels.c.key == key) & (job_labels.c.value == value)))
    subtree = filters.queue or (filters.queues[0] if len(filters.queues) == 1 else "")
    if subtree:
        terms.append(_term_of(job_queues, job_queues.c.queue == subtree))
    if filters.states:
        states = list(filters.states)
        terms.append(_Term(jobs, jobs.c.state.in_(states), _Unindexed(jobs.c.state).in_(states)))
    return terms


def _term_of(table: Table, condition: ColumnElement[bool]) -> _Term:
    inside = select(table.c.number).where(condition & (table.c.number == jobs.c.number)).correlate(jobs).exists()
    return _Term(table, condition, inside)


class _Unindexed(ColumnElement[Any]):
    """A column that no index is to be looked up by: SQLite, which does not know how many rows have a value, would
    choose any. PostgreSQL knows, and is left to choose.
    """

    inherit_cache = True
    _traverse_internals = [("column", InternalTraversal.dp_clauseelement)]  # noqa: RUF012 (as its base class has it)

    def __init__(self, column: Column[Any]) -> None:
        self.column = column
        self.type = column.type


@compiles(_Unindexed)
def _plain(element: _Unindexed, compiler: Any, **options: Any) -> str:
    return str(compiler.process(element.column, **options))


@compiles(_Unindexed, "sqlite")
def _with_plus(element: _Unindexed, compiler: Any, **options: Any) -> str:
    return f"+{compiler.process(element.column, **options)}"


def _leader(connection: Connection, terms: Sequence[_Term]) -> _Term | None:
    """The term that fewest jobs meet, as far as they are counted: the rest is looked at for those only."""
    if len(terms) < 2 or connection.dialect.name != "sqlite":
        return terms[0] if terms else None
    counts = []
    for term in terms:
        some = select(term.table.c.number).where(term.first).limit(COUNTED_MAX).subquery()
        counts.append(connection.execute(select(func.count()).select_from(some)).scalar_one())
    return terms[counts.index(min(counts))]


def in_queues(queues: Sequence[str]) -> ColumnElement[bool]:
    """That a job lies in one of some queues, or below."""
    return or_(*(in_subtree(queue) for queue in queues)) if queues else ~true()


def one(connection: Connection, job: str) -> dict[str, Any] | None:
    """A job by its id."""
    found = connection.execute(_selected().where(jobs.c.id == job)).all()
    return items(connection, found)[0] if found else None


def named(connection: Connection, name: str, queues: Sequence[str]) -> list[dict[str, Any]]:
    """The jobs of a name in some queues, with all below: those that are not over, or else the newest that is."""
    seen = (jobs.c.name == name) & in_queues(queues)
    found = connection.execute(_selected().where(seen & jobs.c.state.in_(LIVE)).order_by(jobs.c.number).limit(10)).all()
    if not found:
        found = connection.execute(_selected().where(seen).order_by(jobs.c.number.desc()).limit(1)).all()
    return items(connection, found)


def members(connection: Connection, array: str) -> list[dict[str, Any]]:
    """The members of an array, in their order."""
    found = connection.execute(_selected().where(jobs.c.array_of == array).order_by(jobs.c.number)).all()
    return items(connection, found)


def spec_of(connection: Connection, job: str) -> Any:
    """A job as it was submitted, or last changed."""
    line = connection.execute(
        select(journal.c.line).join(jobs, jobs.c.submit_seq == journal.c.seq).where(jobs.c.id == job)
    ).scalar_one()
    return msgspec.json.decode(line)["body"]["job"]


def progress_of(connection: Connection, job: str) -> dict[str, Any] | None:
    """What a job said of itself last, and when; None if it never did."""
    found = connection.execute(
        select(journal.c.now_ms, journal.c.line)
        .where((journal.c.job == job) & (journal.c.type == "Progress"))
        .order_by(journal.c.seq.desc())
        .limit(1)
    ).one_or_none()
    if found is None:
        return None
    said = msgspec.json.decode(found.line)["body"]
    return {"at_ms": found.now_ms, **{key: said.get(key, unsaid) for key, unsaid in NO_PROGRESS.items()}}


def reported_step(connection: Connection, job: str, attempt: int) -> int | None:
    """The step that the newest attempt at a job which has reported any said last; None if that is another attempt."""
    said = progress_of(connection, job)
    return int(said["step"]) if said is not None and said["attempt"] == attempt else None


def attempts_of(connection: Connection, job: str) -> list[dict[str, Any]]:
    """All attempts at a job, the oldest first."""
    found = connection.execute(select(attempts).where(attempts.c.job == job).order_by(attempts.c.number))
    return [
        {**row._mapping, "nodes": msgspec.json.decode(row.nodes), "slots": msgspec.json.decode(row.slots)}
        for row in found
    ]


def ranks_of(connection: Connection, job: str, number: int) -> list[int]:
    """The tasks of an attempt, in order; none if there is no such attempt."""
    query = select(attempts.c.slots).where((attempts.c.job == job) & (attempts.c.number == number))
    return sorted(slot["rank"] for slot in msgspec.json.decode(connection.execute(query).scalar() or "[]"))


def counted(connection: Connection) -> list[tuple[str, str, int, int]]:
    """How many jobs that are not over there are in each queue and state, and their GPUs."""
    found = connection.execute(
        select(jobs.c.queue, jobs.c.state, func.count(), func.sum(jobs.c.gpus))
        .where(jobs.c.state.in_(LIVE))
        .group_by(jobs.c.queue, jobs.c.state)
    )
    return [tuple(row) for row in found]


def state_totals(connection: Connection) -> dict[str, int]:
    """How many jobs there are in each state."""
    found = connection.execute(select(jobs.c.state, func.count()).group_by(jobs.c.state))
    return {row[0]: row[1] for row in found}


def items(connection: Connection, rows: Sequence[Row[Any]]) -> list[dict[str, Any]]:
    """Rows as all users see them: with the one reason why each is pending."""
    head = (settings.get(connection, "head") or b" ").decode().split(" ")[1] if any(row.shape for row in rows) else ""
    lost = _lost(connection, [row.id for row in rows if row.preemptions])
    nodes = _last_nodes(connection, [row.id for row in rows if row.state in FINAL and row.attempts])
    return [{**_item(row._mapping, head), "lost_gpu_ms": lost.get(row.id, 0), **nodes.get(row.id, {})} for row in rows]


def _last_nodes(connection: Connection, ended: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Where the last attempts of jobs ran that are over."""
    if not ended:
        return {}
    newest = select(attempts.c.job, func.max(attempts.c.number).label("number")).where(attempts.c.job.in_(ended))
    last = newest.group_by(attempts.c.job).subquery()
    found = connection.execute(
        select(attempts.c.job, attempts.c.nodes).join(
            last, (attempts.c.job == last.c.job) & (attempts.c.number == last.c.number)
        )
    )
    return {row.job: {"nodes": msgspec.json.decode(row.nodes)} for row in found}


def _lost(connection: Connection, preempted: Sequence[str]) -> dict[str, int]:
    """The GPU time that some jobs have lost to preemptions, as far as it is known."""
    if not preempted:
        return {}
    found = connection.execute(
        select(attempts.c.job, func.sum(attempts.c.lost_gpu_ms))
        .where(attempts.c.job.in_(preempted) & (attempts.c.reason == StopReason.PREEMPTED.value))
        .group_by(attempts.c.job)
    )
    return {job: int(lost or 0) for job, lost in found}


def _selected() -> Any:
    return (
        select(jobs, classes.c.verdict, start_forecasts.c.told_start_ms)
        .outerjoin(classes, classes.c.shape == jobs.c.shape)
        .outerjoin(start_forecasts, start_forecasts.c.job == jobs.c.id)
    )


def _item(row: Any, head: str) -> dict[str, Any]:
    item = dict(row)
    for hidden in ("number", "submit_seq", "shape", "wait_reason", "verdict"):
        del item[hidden]
    item["held"] = bool(row["held"])
    item["reason"] = reason_of(row, head)
    item["nodes"] = msgspec.json.decode(row["nodes"])
    item["labels"] = msgspec.json.decode(row["labels"])
    return item


def reason_of(row: Any, head: str) -> str | None:
    """Why a job is pending: it is ineligible, or behind the head, or its class was refused."""
    if row["wait_reason"]:
        return str(row["wait_reason"])
    if not row["shape"]:
        return None
    verdict = str(row["verdict"] or Reason.UNDECIDED.value)
    if head and row["shape"] != head and verdict not in LASTING:
        return Reason.BEHIND.value
    return verdict
