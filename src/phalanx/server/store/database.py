"""The database: how a store is opened, for the one process that writes and the many that read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InvalidRequestError, NoSuchModuleError, StatementError

from phalanx.errors import PhalanxError
from phalanx.server.store.migrations import migrate

BUSY_MS = 10_000
"""How long a writer waits for another program that has locked the database, such as a backup."""

DAMAGED = ("malformed", "not a database", "disk image", "Could not decode to UTF-8")
FULL = ("disk is full", "No space left", "disk I/O error")


UNEXPECTED = (LookupError, TypeError, ValueError, AttributeError, InvalidRequestError, StatementError)
"""What reading rows may raise that are not as they were written."""

PASSWORD = re.compile(r"(?<=://)([^:/@]*:).*(?=@)|([?&](?:ssl)?password=)[^&]*")
"""The password of a URL, in front of its host or among its parameters."""


class StoreError(PhalanxError):
    """The store cannot be opened, read or written."""


class DamagedStoreError(StoreError):
    """What the store holds is not what was written."""

    def __init__(self, url: str, found: str) -> None:
        super().__init__(
            f"{url}: the store is damaged ({found}): put a backup in its place, or start with another --data"
        )


class FullStoreError(StoreError):
    """There is no room left to write."""


class Database:
    """An open store. Only the loop writes; every other process reads."""

    def __init__(self, url: str, engine: Engine) -> None:
        self.url = shown(url)
        """For people: without its password."""
        self.engine = engine

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction: what is done in it is durable, all of it, once the block is left without an error."""
        with self._explained(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read by."""
        with self._explained(), self.engine.connect() as connection:
            yield connection

    def close(self) -> None:
        """Closes all connections."""
        self.engine.dispose()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise explained(self.url, error) from error
        except msgspec.MsgspecError as error:
            raise DamagedStoreError(self.url, f"a value cannot be read: {error}") from error
        except UNEXPECTED as error:
            found = self._damage()
            if found:
                raise DamagedStoreError(self.url, found) from error
            raise

    def _damage(self) -> str:
        """What SQLite finds wrong with its file, if it finds something."""
        if self.engine.dialect.name != "sqlite":
            return ""
        try:
            with self.engine.connect() as connection:
                found = str(connection.execute(text("PRAGMA quick_check(1)")).scalar())
        except DBAPIError as error:
            return str(error.orig)
        return "" if found == "ok" else found.replace("\n", " ")


def explained(url: str, error: DBAPIError) -> StoreError:
    """What an error of the database means, and what to do."""
    said = str(error.orig)
    if any(sign in said for sign in FULL):
        return FullStoreError(f"{url}: {said}: make room on the disk; nothing that was acknowledged is lost")
    if any(sign in said for sign in DAMAGED):
        return DamagedStoreError(url, said)
    if "locked" in said:
        return StoreError(f"{url}: locked by another program for more than {BUSY_MS // 1000} s: end it and try again")
    return StoreError(f"{url}: {said}")


def has_password(url: str) -> bool:
    """Whether the URL of a store has a password in it."""
    return shown(url) != url


def shown(url: str) -> str:
    """The URL of a store for people to read: without its password, however it is written."""
    return PASSWORD.sub(r"\1\2***", url)


def sqlite_url(path: Path) -> str:
    """The URL of a database file."""
    return f"sqlite:///{path}"


def database_file(url: str) -> Path | None:
    """The file of a SQLite database; None for another, or for what is no URL."""
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError):
        return None
    return Path(parsed.database) if backend == "sqlite" and parsed.database else None


def open_database(url: str) -> Database:
    """Opens a store for writing, and brings it to the newest version."""
    database = Database(url, _engine(url, writes=True))
    with database.writing() as connection:
        migrate(connection, database.url)
    return database


def open_reader(url: str) -> Database:
    """Opens a store that is there already, to read from several threads."""
    return Database(url, _engine(url, writes=False))


def _engine(url: str, writes: bool) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        options: dict[str, Any] = {"pool_size": 1 if writes else 8, "max_overflow": 0}
        if parsed.get_backend_name() == "sqlite":
            options["connect_args"] = {"timeout": BUSY_MS / 1000, "check_same_thread": False}
        engine = create_engine(parsed, **options)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        reason = str(error).replace(url, shown(url))
        raise StoreError(f"{shown(url)}: expected the URL of a SQLite or PostgreSQL database: {reason}") from None
    if parsed.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _prepare_writer if writes else _prepare_reader)
        if writes:
            event.listen(engine, "begin", _begin_to_write)
    return engine


def _prepare_writer(connection: Any, _: object) -> None:
    connection.isolation_level = None
    # FULL: a transaction is on the disk before it is acknowledged.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "wal_autocheckpoint=4000"):
        connection.execute(f"PRAGMA {pragma}").close()


def _prepare_reader(connection: Any, _: object) -> None:
    connection.execute("PRAGMA query_only=ON").close()


def _begin_to_write(connection: Connection) -> None:
    """Takes the lock at once: a transaction that began as a reader could not be made a writer's later."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
