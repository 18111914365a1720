"""Revocations: tokens and users that were shut out, kept beside the store, so that no backup lets them in again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from sqlalchemy import Connection, select, update

from phalanx.server.accounts.ledger import change
from phalanx.server.loop.wire import DropUser, PutUser, RevokeToken
from phalanx.server.refusal import Refusal
from phalanx.server.store.tables import tokens, users

FILE = "revoked"


class Revoked(msgspec.Struct, frozen=True, tag="token"):
    """A token that was revoked, or that went with its user."""

    token: str


class Standing(msgspec.Struct, frozen=True, tag="user"):
    """Whether a user may come in from now on. The number tells users apart that had one name after another."""

    user: str
    standing: Literal["here", "disabled", "gone"]
    number: int = 0


Line = Revoked | Standing


class Revocations:
    """A file that only grows, one line each. Of a user, the last line counts."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._revoked: dict[str, None] = {}
        self._standings: dict[tuple[str, int], str] = {}
        with suppress(FileNotFoundError):
            for line in self._path.read_bytes().splitlines():
                # The last line may be torn by a loss of power; what it told of was not acknowledged.
                with suppress(msgspec.DecodeError):
                    self._take_in(msgspec.json.decode(line, type=Line))

    def note(self, lines: Iterable[Line]) -> None:
        """Puts down what is not known yet, durably."""
        fresh = [line for line in lines if self._is_news(line)]
        if not fresh:
            return
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            # It begins with a new line: what was torn before stays a line of its own.
            os.write(handle, b"".join(b"\n" + msgspec.json.encode(line) for line in fresh) + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)
        for line in fresh:
            self._take_in(line)

    def learn(self, connection: Connection) -> None:
        """Takes in what the store knows: it was never told by a release without this file, or a crash came first."""
        revoked = connection.execute(select(tokens.c.id).where(tokens.c.revoked_ms.is_not(None))).scalars()
        self.note(Revoked(token) for token in revoked)
        for row in connection.execute(select(users.c.name, users.c.disabled, users.c.number)):
            self.note([Standing(row.name, "disabled" if row.disabled else "here", row.number)])

    def apply(self, connection: Connection, now: int) -> int:
        """Revokes and shuts out in a restored store what was before; how many tokens and users that were."""
        shut = self.revoke(connection, now)
        for (user, number), standing in self._standings.items():
            if _number_of(connection, user) != number:
                continue
            with suppress(Refusal):
                if standing == "gone":
                    change(connection, DropUser(user), now)
                elif standing == "disabled":
                    change(connection, PutUser(user, new=False, disabled=True), now)
                shut += standing != "here"
        return shut

    def revoke(self, connection: Connection, now: int) -> int:
        """Revokes the tokens that were revoked before: a revoked token never becomes valid again."""
        valid = set(connection.execute(select(tokens.c.id).where(tokens.c.revoked_ms.is_(None))).scalars())
        again = sorted(valid & self._revoked.keys())
        for token in again:
            connection.execute(update(tokens).where(tokens.c.id == token).values(revoked_ms=now))
        return len(again)

    def _is_news(self, line: Line) -> bool:
        if isinstance(line, Revoked):
            return line.token not in self._revoked
        return self._standings.get((line.user, line.number), "here") != line.standing

    def _take_in(self, line: Line) -> None:
        if isinstance(line, Revoked):
            self._revoked[line.token] = None
        else:
            self._standings[line.user, line.number] = line.standing


def lines_of(connection: Connection, body: object) -> list[Line]:
    """What a change of accounts shuts out or lets in; asked before it is made."""
    match body:
        case RevokeToken(id=token):
            return [Revoked(token)]
        case DropUser(name=name):
            had = connection.execute(select(tokens.c.id).where(tokens.c.user == name)).scalars()
            return [*(Revoked(token) for token in had), Standing(name, "gone", _number_of(connection, name))]
        case PutUser(name=name, new=False, disabled=disabled) if disabled is not None:
            return [Standing(name, "disabled" if disabled else "here", _number_of(connection, name))]
        case _:
            return []


def _number_of(connection: Connection, user: str) -> int:
    """The number of a user; one that no user has for a name that there is not."""
    found: int | None = connection.execute(select(users.c.number).where(users.c.name == user)).scalar()
    return -1 if found is None else found
