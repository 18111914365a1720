"""Statements for many rows: compiled once, and handed to the driver as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, bindparam, insert, update

Row = dict[str, Any]


class Bulk:
    """An INSERT of whole rows, or an UPDATE of rows found by `keys`. `without` are columns it leaves alone."""

    def __init__(self, table: Table, keys: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> None:
        columns = [column.name for column in table.columns if column.name not in without]
        # Columns and values must not share names: SQLAlchemy would take one for the other.
        values: dict[str, Any] = {name: bindparam(f"v_{name}") for name in columns if name not in keys}
        if keys:
            where = [table.c[key] == bindparam(f"v_{key}") for key in keys]
            self._statement: Any = update(table).where(*where).values(values)
        else:
            self._statement = insert(table).values(values)
        self._compiled: dict[str, tuple[str, list[str] | None]] = {}

    def run(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Runs it for all rows."""
        if not rows:
            return
        text, names = self._for(connection)
        if names is None:
            connection.exec_driver_sql(text, [{f"v_{key}": value for key, value in row.items()} for row in rows])
        else:
            connection.exec_driver_sql(text, [tuple([row[name] for name in names]) for row in rows])

    def _for(self, connection: Connection) -> tuple[str, list[str] | None]:
        """The statement as the driver takes it: with values by place or by name."""
        dialect = connection.dialect
        known = self._compiled.get(dialect.name)
        if known is None:
            compiled = self._statement.compile(dialect=dialect)
            places = compiled.positiontup
            names = None if places is None else [place.removeprefix("v_") for place in places]
            known = self._compiled[dialect.name] = (str(compiled), names)
        return known
