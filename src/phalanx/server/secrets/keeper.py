"""The keeper of secrets: makes changes to values and grants, in the loop's transaction.

A value is written before its row: if the store fails then, the caller is told so, the new value is under the grants of
before, and setting it again puts both right.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from phalanx.server.loop.wire import DropSecret, GrantSecret, PutSecret
from phalanx.server.refusal import Refusal
from phalanx.server.secrets.folder import SecretFolder
from phalanx.server.secrets.names import need_free_name, need_new_name
from phalanx.server.store.tables import secret_grants, secrets, users

Change = PutSecret | DropSecret | GrantSecret


def change(connection: Connection, folder: SecretFolder, body: Change, now: int) -> dict[str, Any]:
    """Makes a change to secrets. What cannot be is refused, and nothing is changed."""
    match body:
        case PutSecret():
            return _put(connection, folder, body, now)
        case DropSecret(name=name):
            return _drop(connection, folder, name)
        case GrantSecret():
            return _revoke(connection, body) if body.revoked else _grant(connection, folder, body)


def _put(connection: Connection, folder: SecretFolder, body: PutSecret, now: int) -> dict[str, Any]:
    need_new_name(body.name)
    for _, user in body.grants or ():
        _need_user(connection, user)
    _on_disk(body.name, lambda: folder.write(body.name, body.value))
    known = secrets.c.name == body.name
    if not connection.execute(update(secrets).where(known).values(updated_ms=now)).rowcount:
        connection.execute(insert(secrets).values(name=body.name, created_ms=now, updated_ms=now))
    if body.grants is not None:
        connection.execute(delete(secret_grants).where(secret_grants.c.secret == body.name))
        for queue, user in dict.fromkeys(body.grants):
            connection.execute(insert(secret_grants).values(secret=body.name, queue=queue, user=user))
    return {"name": body.name}


def _drop(connection: Connection, folder: SecretFolder, name: str) -> dict[str, Any]:
    _need_secret(connection, folder, name)
    connection.execute(delete(secret_grants).where(secret_grants.c.secret == name))
    connection.execute(delete(secrets).where(secrets.c.name == name))
    _on_disk(name, lambda: folder.remove(name))
    return {"name": name}


def _grant(connection: Connection, folder: SecretFolder, body: GrantSecret) -> dict[str, Any]:
    need_free_name(body.name)
    _need_secret(connection, folder, body.name)
    _need_user(connection, body.user)
    connection.execute(delete(secret_grants).where(_is(body)))
    connection.execute(insert(secret_grants).values(secret=body.name, queue=body.queue, user=body.user))
    return {"name": body.name}


def _revoke(connection: Connection, body: GrantSecret) -> dict[str, Any]:
    if not connection.execute(delete(secret_grants).where(_is(body))).rowcount:
        raise Refusal(
            "not_found",
            f"the secret {body.name!r} has no grant for {grant_words(body.queue, body.user)}: "
            "`phalanx secrets` lists those there are",
        )
    return {"name": body.name}


def grant_words(queue: str, user: str) -> str:
    """A grant in words."""
    where = f"the queue {queue}" if queue else "every queue"
    return f"{user or 'every user'} in {where}"


def _is(body: GrantSecret) -> Any:
    columns = secret_grants.c
    return (columns.secret == body.name) & (columns.queue == body.queue) & (columns.user == body.user)


def _on_disk(name: str, work: Callable[[], None]) -> None:
    try:
        work()
    except OSError as error:
        code = "storage_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "unavailable"
        raise Refusal(
            code, f"the secret {name!r} was not changed: its file cannot be written: {error.strerror}"
        ) from None


def _need_secret(connection: Connection, folder: SecretFolder, name: str) -> None:
    known = connection.execute(select(secrets.c.name).where(secrets.c.name == name)).scalar()
    if known is None and not folder.has(name):
        raise Refusal("not_found", f"there is no secret {name!r}: set one with `phalanx secrets set {name}`")


def _need_user(connection: Connection, name: str) -> None:
    if name and connection.execute(select(users.c.name).where(users.c.name == name)).scalar() is None:
        raise Refusal("not_found", f"there is no user {name!r}")
