"""The ledger of accounts: users, their roles and their tokens, as the store has them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import singledispatch
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update

from phalanx.server.accounts.roles import ROOT, Account, Grant, Role, Scope, scopes_of
from phalanx.server.accounts.sessions import SESSIONS_MAX, end_ms
from phalanx.server.loop.wire import AddToken, DropUser, PutRole, PutUser, RenewSession, RevokeToken
from phalanx.server.refusal import Refusal
from phalanx.server.store import settings
from phalanx.server.store.tables import grants, secret_grants, tokens, users

NUMBERS = "user_numbers"
"""The setting that holds the highest number that a user was ever given."""

NUMBERS_SKIPPED = 1_000

Change = PutUser | DropUser | PutRole | AddToken | RevokeToken | RenewSession

GENERATIONS_MAX = 16
"""How long a chain of tokens that were made with one another may get: all of it is looked up with the last."""


def change(connection: Connection, body: Change, now: int) -> dict[str, Any]:
    """Makes a change to accounts. What cannot be is refused, and nothing is changed."""
    return _change(body, connection, now)


@singledispatch
def _change(body: object, connection: Connection, now: int) -> dict[str, Any]:
    raise TypeError(f"{type(body).__name__} is no change of accounts")


@_change.register
def _put_user(body: PutUser, connection: Connection, now: int) -> dict[str, Any]:
    known = _is_user(connection, body.name)
    if body.new and known:
        raise Refusal("conflict", f"there is a user {body.name!r} already")
    if not body.new and not known:
        raise Refusal("not_found", f"there is no user {body.name!r}")
    if body.disabled:
        _keep_an_admin(connection, body.name)
    if body.new:
        connection.execute(
            insert(users).values(
                name=body.name,
                password=body.password,
                disabled=bool(body.disabled),
                created_ms=now,
                unix_user=body.unix_user or "",
                number=_next_number(connection),
            )
        )
    else:
        values = {"password": body.password, "disabled": body.disabled, "unix_user": body.unix_user}
        given = {key: value for key, value in values.items() if value is not None}
        if given:
            connection.execute(update(users).where(users.c.name == body.name).values(given))
    return {"name": body.name}


@_change.register
def _drop_user(body: DropUser, connection: Connection, now: int) -> dict[str, Any]:
    _need_user(connection, body.name)
    _keep_an_admin(connection, body.name)
    connection.execute(delete(grants).where(grants.c.user == body.name))
    _revoke(connection, tokens.c.user == body.name, now)
    connection.execute(delete(tokens).where(tokens.c.user == body.name))
    connection.execute(delete(secret_grants).where(secret_grants.c.user == body.name))
    connection.execute(delete(users).where(users.c.name == body.name))
    return {"name": body.name}


@_change.register
def _put_role(body: PutRole, connection: Connection, now: int) -> dict[str, Any]:
    _need_user(connection, body.name)
    if body.queue == ROOT and body.role != Role.ADMIN:
        _keep_an_admin(connection, body.name)
    gone = connection.execute(delete(grants).where((grants.c.user == body.name) & (grants.c.queue == body.queue)))
    if body.role:
        connection.execute(insert(grants).values(user=body.name, queue=body.queue, role=body.role))
    elif not gone.rowcount:
        raise Refusal("not_found", f"{body.name} has no role in {body.queue or 'the root queue'}")
    return {"name": body.name, "queue": body.queue, "role": body.role}


@_change.register
def _add_token(body: AddToken, connection: Connection, now: int) -> dict[str, Any]:
    _need_user(connection, body.user)
    if body.parent is not None:
        _need_parent(connection, body.parent, body.expires_ms, now)
    if body.session_until_ms is not None:
        _make_room_for_session(connection, body.user, now)
    connection.execute(
        insert(tokens).values(
            id=body.id,
            user=body.user,
            name=body.name,
            digest=body.digest,
            scopes=body.scopes,
            created_ms=now,
            expires_ms=body.expires_ms,
            parent=body.parent,
            session_until_ms=body.session_until_ms,
        )
    )
    return {"id": body.id, "name": body.name, "user": body.user, "scopes": body.scopes, "expires_ms": body.expires_ms}


@_change.register
def _revoke_token(body: RevokeToken, connection: Connection, now: int) -> dict[str, Any]:
    count = _revoke(connection, (tokens.c.id == body.id) & tokens.c.revoked_ms.is_(None), now)
    if not count:
        raise Refusal("not_found", f"there is no token {body.id!r} that could be revoked")
    return {"id": body.id, "revoked": count}


@_change.register
def _renew_session(body: RenewSession, connection: Connection, now: int) -> dict[str, Any]:
    live = (tokens.c.id == body.id) & _is_live_session(now)
    until_ms = connection.execute(select(tokens.c.session_until_ms).where(live)).scalar()
    if until_ms is None:
        raise Refusal("not_found", f"there is no session {body.id!r} that could be renewed")
    expires_ms = end_ms(now, until_ms)
    connection.execute(update(tokens).where(tokens.c.id == body.id).values(expires_ms=expires_ms))
    return {"id": body.id, "expires_ms": expires_ms}


def _is_live_session(now: int) -> ColumnElement[bool]:
    return tokens.c.session_until_ms.is_not(None) & tokens.c.revoked_ms.is_(None) & (tokens.c.expires_ms > now)


def _make_room_for_session(connection: Connection, user: str, now: int) -> None:
    """Ends the oldest sessions of a user that has too many: no user is kept out by browsers that were forgotten."""
    live = select(tokens.c.id).where((tokens.c.user == user) & _is_live_session(now))
    newest_first = live.order_by(tokens.c.created_ms.desc(), tokens.c.id).offset(SESSIONS_MAX - 1)
    too_many = connection.execute(newest_first).scalars().all()
    if too_many:
        _revoke(connection, tokens.c.id.in_(too_many), now)


def forget_sessions(connection: Connection, before_ms: int) -> None:
    """Drops sessions that ended before a moment."""
    connection.execute(delete(tokens).where(tokens.c.session_until_ms.is_not(None) & (tokens.c.expires_ms < before_ms)))


def _revoke(connection: Connection, which: ColumnElement[bool], now: int) -> int:
    """Revokes tokens with all that were made with them; how many."""
    found = select(tokens.c.id).where(which).cte("found", recursive=True)
    found = found.union(select(tokens.c.id).join(found, tokens.c.parent == found.c.id))
    fresh = tokens.c.id.in_(select(found.c.id)) & tokens.c.revoked_ms.is_(None)
    return len(connection.execute(update(tokens).where(fresh).values(revoked_ms=now).returning(tokens.c.id)).all())


def _need_parent(connection: Connection, parent: str, expires_ms: int | None, now: int) -> None:
    """A token is made with one that is valid, and ends no later."""
    lineage = _lineage(connection, tokens.c.id == parent)
    if not _is_valid(lineage, now):
        raise Refusal("unauthenticated", f"the token {parent!r} is not valid any more")
    if len(lineage) >= GENERATIONS_MAX:
        raise Refusal("forbidden", f"the token {parent!r} is of generation {len(lineage)}: make it with an earlier one")
    end_ms = next(each.expires_ms for each in lineage if each.id == parent)
    if end_ms is not None and (expires_ms is None or expires_ms > end_ms):
        raise Refusal("forbidden", beyond(end_ms))


def beyond(end_ms: int) -> str:
    """Why a token cannot last as long as was asked for."""
    end = datetime.fromtimestamp(end_ms / 1000, UTC).isoformat(timespec="seconds")
    return f"a token ends no later than the token it is made with, which ends {end}: ask for less, or log in anew"


def account_of_digest(connection: Connection, digest: str, now: int) -> Account | None:
    """The account that a token stands for.

    None if the token, or one that it was made with, is unknown, expired or revoked, or is of a user that is shut out.
    """
    lineage = _lineage(connection, tokens.c.digest == digest)
    if not _is_valid(lineage, now):
        return None
    found = next(each for each in lineage if each.digest == digest)
    return Account(
        found.user,
        grants_of(connection, found.user),
        scopes_of(found.scopes),
        found.id,
        expires_ms=found.expires_ms,
        parent=found.parent,
        parent_ends_ms=next((each.expires_ms for each in lineage if each.id == found.parent), None),
        session_until_ms=found.session_until_ms,
    )


def _lineage(connection: Connection, which: ColumnElement[bool]) -> Sequence[Row[Any]]:
    """A token, the one it was made with, and so on."""
    line = select(tokens).where(which).cte("line", recursive=True)
    line = line.union(select(tokens).join(line, tokens.c.id == line.c.parent))
    return connection.execute(select(line, users.c.disabled).outerjoin(users, users.c.name == line.c.user)).all()


def _is_valid(lineage: Sequence[Row[Any]], now: int) -> bool:
    """Whether all of a lineage is there and in force. A user that was removed is missing: `disabled` is None."""
    ids = {each.id for each in lineage}
    return bool(lineage) and all(
        each.revoked_ms is None
        and (each.expires_ms is None or each.expires_ms > now)
        and each.disabled is not None
        and not each.disabled
        and (each.parent is None or each.parent in ids)
        for each in lineage
    )


def grants_of(connection: Connection, user: str) -> tuple[Grant, ...]:
    """The roles of a user."""
    found = connection.execute(
        select(grants.c.queue, grants.c.role).where(grants.c.user == user).order_by(grants.c.queue)
    )
    return tuple(Grant(row.queue, Role(row.role)) for row in found)


def password_of(connection: Connection, user: str) -> str | None:
    """What is kept of a user's password; None if there is none or the user may not come in."""
    where = (users.c.name == user) & users.c.disabled.is_(False)
    found: str | None = connection.execute(select(users.c.password).where(where)).scalar()
    return found


def has_users(connection: Connection) -> bool:
    """Whether any account was ever made."""
    return connection.execute(select(users.c.name).limit(1)).scalar() is not None


def _next_number(connection: Connection) -> int:
    """A number that no user had before: files that a deleted user left behind must not become another's."""
    highest = connection.execute(select(func.max(users.c.number))).scalar() or 0
    number = 1 + max(int(settings.get(connection, NUMBERS) or b"0"), highest)
    settings.put(connection, NUMBERS, str(number).encode())
    return number


def skip_numbers(connection: Connection) -> None:
    """Passes over numbers of users that a restored store may not know: their files are still there."""
    settings.put(connection, NUMBERS, str(_next_number(connection) + NUMBERS_SKIPPED).encode())


def locked_out_admin(connection: Connection, now: int) -> str:
    """An admin of everything, if none of them has a valid token or a password any more; empty if one can come in."""
    root_admin = (grants.c.queue == ROOT) & (grants.c.role == Role.ADMIN.value) & users.c.disabled.is_(False)
    admins = connection.execute(
        select(users.c.name, users.c.password)
        .join(grants, grants.c.user == users.c.name)
        .where(root_admin)
        .order_by(users.c.created_ms)
    ).all()
    unexpired = tokens.c.expires_ms.is_(None) | (tokens.c.expires_ms > now)
    valid = connection.execute(
        select(tokens.c.user, tokens.c.scopes).where(tokens.c.revoked_ms.is_(None) & unexpired)
    ).all()
    with_token = {token.user for token in valid if Scope.ADMIN in scopes_of(token.scopes)}
    if not admins or any(admin.password is not None or admin.name in with_token for admin in admins):
        return ""
    return str(admins[0].name)


def _is_user(connection: Connection, name: str) -> bool:
    return connection.execute(select(users.c.name).where(users.c.name == name)).scalar() is not None


def _need_user(connection: Connection, name: str) -> None:
    if not _is_user(connection, name):
        raise Refusal("not_found", f"there is no user {name!r}")


def _keep_an_admin(connection: Connection, without: str) -> None:
    """Refuses what would leave no admin that can put accounts right."""
    root_admin = (grants.c.queue == ROOT) & (grants.c.role == Role.ADMIN.value)
    admins = connection.execute(
        select(grants.c.user).join(users, users.c.name == grants.c.user).where(root_admin & users.c.disabled.is_(False))
    ).scalars()
    if list(admins) == [without]:
        raise Refusal("conflict", f"{without} is the last admin: make another user one first")
