"""Viewing: a server that shows a journal to its user, schedules nothing and changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from phalanx.server.accounts.ledger import change
from phalanx.server.accounts.roles import ROOT, Role, Scope
from phalanx.server.accounts.tokens import new_token
from phalanx.server.clock import wall_ms
from phalanx.server.loop.wire import AddToken, PutRole, PutUser
from phalanx.server.options import Options
from phalanx.server.past.filling import Source, fill
from phalanx.server.store.database import Database, open_database
from phalanx.server.up import up

USER = "viewer"
OPEN = "/ui/open/"
"""Behind it comes what stands for the user's session: whoever has the address can look."""

LASTS_MS = 365 * 24 * 3_600_000


def view(source: Source, options: Options, ready: Callable[[Options, str], None], tell: Callable[[str], None]) -> int:
    """Shows a journal until SIGTERM or SIGINT. `ready` is told the address at which it is let in."""
    folder = options.file()
    folder.mkdir(mode=0o700)
    database = open_database(options.store_url)
    try:
        shown = fill(database, folder, source, tell)
        key = _let_in(database)
    finally:
        database.close()
    return up(replace(options, shown=shown), lambda made: ready(made, f"{made.url}{OPEN}{key}"), tell)


def _let_in(database: Database) -> str:
    """Makes a user that may look at all queues, and a session of a browser that does not end."""
    token, now_ms = new_token(), wall_ms()
    until_ms = now_ms + LASTS_MS
    with database.writing() as connection:
        change(connection, PutUser(USER, new=True), now_ms)
        change(connection, PutRole(USER, ROOT, Role.VIEWER.value), now_ms)
        session = AddToken(token.id, USER, "browser", token.digest, Scope.READ.value, until_ms, None, until_ms)
        change(connection, session, now_ms)
    return token.token
