"""Migrations: what brings a store of any older version to the newest, one step after another."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from sqlalchemy import Connection, inspect, text

from phalanx.errors import PhalanxError
from phalanx.server.store.tables import metadata


class NewerStoreError(PhalanxError):
    """The store was written by a newer phalanx."""


def create_tables(connection: Connection) -> None:
    """Version 1: the tables as they are defined. A later version alters what this one made."""
    metadata.create_all(connection)


def add_unix_users(connection: Connection) -> None:
    """Version 2: users have a Unix user that their tasks run as. A store that was made just now has that already."""
    if "unix_user" not in {column["name"] for column in inspect(connection).get_columns("users")}:
        connection.execute(text("ALTER TABLE users ADD COLUMN unix_user TEXT NOT NULL DEFAULT ''"))


def add_running_times(connection: Connection) -> None:
    """Version 3: jobs tell since when they run, and how long earlier attempts ran, as their attempts have it."""
    if "running_since_ms" in {column["name"] for column in inspect(connection).get_columns("jobs")}:
        return
    connection.execute(text("ALTER TABLE jobs ADD COLUMN running_since_ms BIGINT"))
    connection.execute(text("ALTER TABLE jobs ADD COLUMN executed_before_ms BIGINT NOT NULL DEFAULT 0"))
    connection.execute(
        text(
            "UPDATE jobs SET"
            " running_since_ms = (SELECT max(started_ms) FROM attempts WHERE job = jobs.id AND ended_ms IS NULL),"
            " executed_before_ms = (SELECT coalesce(sum(ended_ms - started_ms), 0) FROM attempts WHERE job = jobs.id)"
        )
    )


def number_users(connection: Connection) -> None:
    """Version 4: users have numbers, by which tasks of those without a Unix user run. The oldest has the lowest."""
    if "number" in {column["name"] for column in inspect(connection).get_columns("users")}:
        return
    connection.execute(text("ALTER TABLE users ADD COLUMN number INTEGER NOT NULL DEFAULT 0"))
    names = connection.execute(text("SELECT name FROM users ORDER BY created_ms, name")).scalars().all()
    for number, name in enumerate(names, start=1):
        connection.execute(
            text("UPDATE users SET number = :number WHERE name = :name"), {"number": number, "name": name}
        )


def add_token_parents(connection: Connection) -> None:
    """Version 5: tokens know the token that they were made with. Of those there are it is not known: they have none."""
    if "parent" not in {column["name"] for column in inspect(connection).get_columns("tokens")}:
        connection.execute(text("ALTER TABLE tokens ADD COLUMN parent TEXT"))
        connection.execute(text("CREATE INDEX tokens_by_parent ON tokens (parent)"))


def add_secrets(connection: Connection) -> None:
    """Version 6: secrets have grants. A store that was made just now has the tables already."""
    metadata.create_all(connection, [metadata.tables["secrets"], metadata.tables["secret_grants"]])


def add_losses(connection: Connection) -> None:
    """Version 7: attempts tell how far they came and what was lost with them. Of older ones it is not known."""
    known = {column["name"] for column in inspect(connection).get_columns("attempts")}
    for name in ("step", "durable_step", "lost_ms", "lost_gpu_ms"):
        if name not in known:
            connection.execute(text(f"ALTER TABLE attempts ADD COLUMN {name} BIGINT"))


def add_start_forecasts(connection: Connection) -> None:
    """Version 8: the starts that submitters were told are kept. Of older jobs none was told."""
    metadata.create_all(connection, [metadata.tables["start_forecasts"]])


def add_sessions(connection: Connection) -> None:
    """Version 9: sessions of browsers are tokens of their own. There were none."""
    if "session_until_ms" not in {column["name"] for column in inspect(connection).get_columns("tokens")}:
        connection.execute(text("ALTER TABLE tokens ADD COLUMN session_until_ms BIGINT"))


def add_devices(connection: Connection) -> None:
    """Version 10: nodes tell of each device, and when they changed. The loop writes all of them anew when it starts."""
    if "devices" not in {column["name"] for column in inspect(connection).get_columns("nodes")}:
        connection.execute(text("ALTER TABLE nodes ADD COLUMN devices TEXT NOT NULL DEFAULT '[]'"))
        connection.execute(text("ALTER TABLE nodes ADD COLUMN seq BIGINT NOT NULL DEFAULT -1"))
        connection.execute(text("CREATE INDEX nodes_by_seq ON nodes (seq)"))


def add_past(connection: Connection) -> None:
    """Version 11: the past of jobs and nodes is kept. Of before it is known which attempts there were on which node."""
    names = ("job_phases", "node_attempts", "node_healths")
    metadata.create_all(connection, [metadata.tables[name] for name in names])
    found = connection.execute(text("SELECT job, number, created_ms, nodes FROM attempts")).all()
    rows = [
        {"node": node, "created_ms": row.created_ms, "job": row.job, "number": row.number}
        for row in found
        for node in dict.fromkeys(msgspec.json.decode(row.nodes))
    ]
    if rows and not connection.execute(text("SELECT count(*) FROM node_attempts")).scalar_one():
        connection.execute(metadata.tables["node_attempts"].insert(), rows)


def add_sizes(connection: Connection) -> None:
    """Version 12: the sizes of resized attempts are kept. Of before it is taken that jobs always had their last one."""
    metadata.create_all(connection, [metadata.tables["attempt_sizes"]])
    if "executed_before_gpu_ms" in {column["name"] for column in inspect(connection).get_columns("jobs")}:
        return
    connection.execute(text("ALTER TABLE jobs ADD COLUMN executed_before_gpu_ms BIGINT NOT NULL DEFAULT 0"))
    connection.execute(text("UPDATE jobs SET executed_before_gpu_ms = gpus * executed_before_ms"))


def add_findings(connection: Connection) -> None:
    """Version 13: what launchers find out about their tasks is kept. Nothing is known of before."""
    metadata.create_all(connection, [metadata.tables["findings"]])


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (
    create_tables,
    add_unix_users,
    add_running_times,
    number_users,
    add_token_parents,
    add_secrets,
    add_losses,
    add_start_forecasts,
    add_sessions,
    add_devices,
    add_past,
    add_sizes,
    add_findings,
)
"""What leads from version n to n + 1 stands at place n. Never change one that was released: add another."""


def migrate(connection: Connection, url: str) -> int:
    """Brings a store to the newest version, in the caller's transaction; the version it had before."""
    found = version_of(connection)
    if found > len(MIGRATIONS):
        raise NewerStoreError(
            f"{url}: a store of version {found}; this phalanx knows up to version {len(MIGRATIONS)}, start a newer one"
        )
    for number, step in enumerate(MIGRATIONS[found:], start=found + 1):
        step(connection)
        _set_version(connection, number)
    return found


def version_of(connection: Connection) -> int:
    """The version of a store; 0 for an empty database."""
    if not inspect(connection).has_table("store_version"):
        return 0
    return int(connection.execute(text("SELECT version FROM store_version")).scalar_one())


def _set_version(connection: Connection, number: int) -> None:
    if number == 1:
        connection.execute(text("CREATE TABLE store_version (version INTEGER NOT NULL)"))
        connection.execute(text("INSERT INTO store_version (version) VALUES (1)"))
    else:
        connection.execute(text("UPDATE store_version SET version = :number"), {"number": number})
