"""Records of the journal as server-sent events, cut to what an account may see of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from phalanx.server.accounts.roles import Account
from phalanx.server.hidden_env import without_values
from phalanx.server.store.journal import Entry, entries
from phalanx.server.store.tables import jobs

CHUNK = 500
QUIET_S = 15.0
"""After so long without an event a comment is sent, so that no proxy on the way takes the stream for dead."""

ABOUT_JOBS = ("claims", "actions", "verdicts", "reservations")
"""The parts of a Decision that are about one job each."""


def chunk_of(connection: Connection, seq: int, account: Account) -> tuple[int | None, list[bytes]]:
    """The next records after one: the number of the last, and what the account may see of them."""
    found = entries(connection, seq, CHUNK)
    if not found:
        return None, []
    return found[-1].seq, [_event(entry, body) for entry, body in shown_to(connection, found, account)]


def shown_to(connection: Connection, found: Sequence[Entry], account: Account) -> list[tuple[Entry, dict[str, Any]]]:
    """What an account may see of records, each with its body."""
    shown = [(entry, _body(entry)) for entry in found]
    if not account.sees(""):
        queues = queues_of(connection, [job for _, body in shown for job in _jobs_in(body)])
        seen = {job for job, queue in queues.items() if account.sees(queue)}
        shown = [(entry, cut) for entry, body in shown if (cut := _cut(body, seen)) is not None]
    return [(entry, _without_values(body, account)) for entry, body in shown]


def _without_values(body: dict[str, Any], account: Account) -> dict[str, Any]:
    """A record without the values of variables of a job that the account may not change."""
    job = body.get("job")
    if not isinstance(job, dict) or account.may_change(job.get("queue", ""), job.get("user", "")):
        return body
    return {**body, "job": without_values(job)}


def _body(entry: Entry) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(entry.line)["body"]
    return body


def _event(entry: Entry, body: dict[str, Any]) -> bytes:
    about = {"seq": entry.seq, "now_ms": entry.now_ms}
    content = msgspec.json.encode({**about, **body})
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (entry.seq, entry.type.encode(), content)


def _jobs_in(body: dict[str, Any]) -> list[str]:
    if body["type"] == "Decision":
        return [_job_of(part) for key in ABOUT_JOBS for part in body.get(key) or ()]
    return [job] if (job := _job_of(body)) else []


def _job_of(part: dict[str, Any]) -> str:
    """The job that a part of a record is about."""
    if "job" in part:
        job = part["job"]
        return str(job["id"]) if isinstance(job, dict) else str(job)
    action = part.get("action") or part.get("id")
    return str(action[1]) if action else ""


def _cut(body: dict[str, Any], seen: set[str]) -> dict[str, Any] | None:
    """What of a record may be seen by an account that sees some jobs only; None if nothing."""
    if body["type"] != "Decision":
        job = _job_of(body)
        return (
            body if job in seen or (not job and body["type"] in ("NodeHealthChanged", "DeviceHealthChanged")) else None
        )
    cut = {key: [part for part in body.get(key) or () if _job_of(part) in seen] for key in ABOUT_JOBS if body.get(key)}
    for claim in cut.get("claims", []):
        claim.pop("victims", None)
    kept = {key: parts for key, parts in cut.items() if parts}
    return {"type": "Decision", **kept} if kept else None


def queues_of(connection: Connection, ids: list[str]) -> dict[str, str]:
    """The queues of some jobs."""
    found = connection.execute(select(jobs.c.id, jobs.c.queue).where(jobs.c.id.in_(list(dict.fromkeys(ids)))))
    return {row.id: row.queue for row in found}
