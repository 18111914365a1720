"""Restoration: whether the store is behind what was done in its data folder, and how a leader begins then.

A store that was restored from a backup is behind the mark. It goes on in another incarnation, with ids that were never
given, under a term that the backend has not seen.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, insert

from phalanx.backends.live import FoundAttempt
from phalanx.engine.state.state import State
from phalanx.server.accounts.ledger import skip_numbers
from phalanx.server.loop.mark import Mark, Reached
from phalanx.server.store import settings
from phalanx.server.store.lineage import BEFORE, Incarnation, Lineage, read_lineage
from phalanx.server.store.tables import audit

NEXT_ID, CHANGES, UNSETTLED = "next_id", "account_changes", "restored"
"""Settings: ids below are given; how often accounts have changed; what is told once a restored store is settled."""

JUMP = 1_000
SERVER = "phalanx"
"""The user of what the server does by itself, in the audit log."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a leader begins. `told` says what was lost; it is empty if the store was not restored."""

    lineage: Lineage
    next_id: int
    term: int
    now: int
    told: str = ""


def beginning(connection: Connection, state: State, data: Path, now: int) -> Beginning:
    """Compares the store with its mark and with what lies in the data folder."""
    lineage, store = read_lineage(connection), reached(connection, state)
    mark, left = Mark(data / "backend").read(), _left_in(data)
    begun = state.seq >= 0
    if mark is None:
        restored = bool(lineage.incarnations) or store.is_behind(left)
        known = left
    else:
        restored = mark[0] != lineage.present or store.is_behind(mark[1]) or store.is_behind(left)
        known = Reached(*map(max, mark[1], left))
    term = max(store.term, known.term) + 1
    if lineage.incarnations and not restored:
        return Beginning(lineage, store.next_id, term, now)
    # What was recorded before must not be of the same millisecond: the time tells the incarnation of an attempt.
    now = max(now, state.now + 1)
    if begun and not lineage.incarnations:
        lineage = Lineage((Incarnation(BEFORE, 0),))
    lineage = lineage.begun(now if begun else 0)
    if not restored:
        return Beginning(lineage, store.next_id, term, now)
    next_id = max(store.next_id, known.next_id)
    if mark is None and len(lineage.incarnations) > 1 and lineage.incarnations[0].id != BEFORE:
        next_id = -(-next_id // JUMP) * JUMP + JUMP
    return Beginning(lineage, next_id, term, now, _told(store, mark[1] if mark else None, next_id))


def reached(connection: Connection, state: State) -> Reached:
    """How far a store has come."""
    highest = max((_number(job) for job in state.jobs), default=0)
    floor = int(settings.get(connection, NEXT_ID) or b"1")
    changes = int(settings.get(connection, CHANGES) or b"0")
    return Reached(state.seq + 1, state.term, max(highest + 1, floor), changes)


def write_restored(connection: Connection, begun: Beginning, shut: int) -> None:
    """Puts down that the store was restored; it stays unsettled until the backend has ended what it does not know."""
    told = begun.told + (f"; {_many(shut, 'token or user', 'tokens and users')} stay shut out" if shut else "")
    settings.put(connection, NEXT_ID, str(begun.next_id).encode())
    settings.put(connection, UNSETTLED, told.encode())
    skip_numbers(connection)
    _audit(connection, begun.now, "restore store", begun.lineage.present, told)


def settle(connection: Connection, found: list[FoundAttempt], now: int) -> str:
    """Puts down what the backend found of the lost time; what is to be told of the restore."""
    for each in found:
        detail = f"of incarnation {each.incarnation or 'unknown'}: {each.outcome}; {each.path}"
        _audit(connection, now, "find attempt", f"{each.job}/{each.attempt}", detail)
    told = (settings.get(connection, UNSETTLED) or b"").decode()
    settings.put(connection, UNSETTLED, b"")
    attempts = _many(len(found), "attempt", "attempts")
    return f"{told}; {attempts} found that the store does not know" + (": see `phalanx jobs --found`" if found else "")


def is_unsettled(connection: Connection) -> bool:
    """Whether the backend has still to end what a restored store does not know."""
    return bool(settings.get(connection, UNSETTLED))


def _left_in(data: Path) -> Reached:
    """How far a server has come in a data folder, by the folders of jobs and the term of the backend."""
    highest = term = 0
    with suppress(FileNotFoundError):
        highest = max((_number(name) for name in os.listdir(data / "jobs")), default=0)
    with suppress(FileNotFoundError, ValueError):
        term = int((data / "backend" / "term").read_text())
    return Reached(term=term, next_id=highest + 1)


def _number(job: str) -> int:
    number = job.partition(".")[0]
    return int(number) if number.isdecimal() else 0


def _told(store: Reached, had: Reached | None, next_id: int) -> str:
    told = "the store was restored"
    if had is not None:
        told += f": it has {store.records:,} records of {had.records:,}" if store.records < had.records else ""
    else:
        told += ": it has no mark in this folder"
    skipped = next_id - store.next_id
    if skipped:
        ids = f"{store.next_id} to {next_id - 1}" if skipped > 1 else str(store.next_id)
        told += f"; {_many(skipped, 'job id', 'job ids')}, {ids}, {'is' if skipped == 1 else 'are'} skipped"
    return told


def _many(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _audit(connection: Connection, now: int, verb: str, target: str, detail: str) -> None:
    entry = {"at_ms": now, "user": SERVER, "token": "", "origin": "", "verb": verb, "target": target}
    connection.execute(insert(audit).values(**entry, detail=detail[:500], outcome="done"))
