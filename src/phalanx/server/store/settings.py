"""Single values of the store, by name."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from phalanx.server.store.tables import settings


def get(connection: Connection, key: str) -> bytes | None:
    """A value; None if it was never set."""
    found: bytes | None = connection.execute(select(settings.c.value).where(settings.c.key == key)).scalar()
    return found


def put(connection: Connection, key: str, value: bytes) -> None:
    """Sets a value."""
    connection.execute(delete(settings).where(settings.c.key == key))
    connection.execute(insert(settings).values(key=key, value=value))
