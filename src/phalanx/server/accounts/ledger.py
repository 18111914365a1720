"""The ledger of accounts: users, their roles and their tokens, as the store has them."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from phalanx.server.accounts.roles import ROOT, Account, Grant, Role, scopes_of
from phalanx.server.loop.wire import AddToken, DropUser, PutRole, PutUser, RevokeToken
from phalanx.server.refusal import Refusal
from phalanx.server.store.tables import grants, tokens, users

Change = PutUser | DropUser | PutRole | AddToken | RevokeToken


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
    connection.execute(delete(tokens).where(tokens.c.user == body.name))
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
    connection.execute(
        insert(tokens).values(
            id=body.id,
            user=body.user,
            name=body.name,
            digest=body.digest,
            scopes=body.scopes,
            created_ms=now,
            expires_ms=body.expires_ms,
        )
    )
    return {"id": body.id, "name": body.name, "user": body.user, "scopes": body.scopes, "expires_ms": body.expires_ms}


@_change.register
def _revoke_token(body: RevokeToken, connection: Connection, now: int) -> dict[str, Any]:
    fresh = (tokens.c.id == body.id) & tokens.c.revoked_ms.is_(None)
    if not connection.execute(update(tokens).where(fresh).values(revoked_ms=now)).rowcount:
        raise Refusal("not_found", f"there is no token {body.id!r} that could be revoked")
    return {"id": body.id}


def account_of_digest(connection: Connection, digest: str, now: int) -> Account | None:
    """The account that a token stands for; None if it is unknown, expired or revoked, or its user may not come in."""
    found = connection.execute(
        select(tokens.c.id, tokens.c.user, tokens.c.scopes, tokens.c.expires_ms)
        .join(users, users.c.name == tokens.c.user)
        .where((tokens.c.digest == digest) & tokens.c.revoked_ms.is_(None) & users.c.disabled.is_(False))
    ).one_or_none()
    if found is None or (found.expires_ms is not None and found.expires_ms <= now):
        return None
    return Account(found.user, grants_of(connection, found.user), scopes_of(found.scopes), found.id)


def unix_user_of(connection: Connection, user: str) -> str:
    """The Unix user that a user's tasks run as; empty if nobody said."""
    return connection.execute(select(users.c.unix_user).where(users.c.name == user)).scalar() or ""


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
    """Whether anybody was ever given an account."""
    return connection.execute(select(users.c.name).limit(1)).scalar() is not None


def _is_user(connection: Connection, name: str) -> bool:
    return connection.execute(select(users.c.name).where(users.c.name == name)).scalar() is not None


def _need_user(connection: Connection, name: str) -> None:
    if not _is_user(connection, name):
        raise Refusal("not_found", f"there is no user {name!r}")


def _keep_an_admin(connection: Connection, without: str) -> None:
    """Refuses what would leave nobody who can put accounts right."""
    root_admin = (grants.c.queue == ROOT) & (grants.c.role == Role.ADMIN.value)
    admins = connection.execute(
        select(grants.c.user).join(users, users.c.name == grants.c.user).where(root_admin & users.c.disabled.is_(False))
    ).scalars()
    if list(admins) == [without]:
        raise Refusal("conflict", f"{without} is the last admin: make somebody else one first")
