"""The lineage of a store: the incarnations it has been through. Each restore from a backup begins another.

A backup that is restored knows nothing of what was done since. What is done anew gets the same numbers; the incarnation
tells the two apart.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection

from phalanx.server.store import settings

KEY = "incarnations"
BEFORE = ""
"""The incarnation of attempts that a release without incarnations started."""


class Incarnation(msgspec.Struct, frozen=True):
    """A time in which the journal only grew: `since_ms` is that of its first record."""

    id: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Lineage:
    """Incarnations in their order, the present one last."""

    incarnations: tuple[Incarnation, ...] = ()

    @property
    def present(self) -> str:
        """The incarnation of what begins now."""
        return self.incarnations[-1].id if self.incarnations else BEFORE

    @property
    def ids(self) -> frozenset[str]:
        """All of them, without their times."""
        return frozenset(each.id for each in self.incarnations) or frozenset({BEFORE})

    def at(self, now_ms: int) -> str:
        """The incarnation of what was recorded at a moment."""
        return next((each.id for each in reversed(self.incarnations) if each.since_ms <= now_ms), BEFORE)

    def begun(self, now_ms: int) -> Lineage:
        """With another incarnation from now on."""
        return Lineage((*self.incarnations, Incarnation(secrets.token_hex(8), now_ms)))


def read_lineage(connection: Connection) -> Lineage:
    """The lineage of a store; empty if it was never begun."""
    kept = settings.get(connection, KEY)
    return Lineage(msgspec.json.decode(kept, type=tuple[Incarnation, ...]) if kept else ())


def write_lineage(connection: Connection, lineage: Lineage) -> None:
    """Puts a lineage down."""
    settings.put(connection, KEY, msgspec.json.encode(lineage.incarnations))
