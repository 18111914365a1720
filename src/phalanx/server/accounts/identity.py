"""The Unix user of an account, as which its tasks run. It is never the server's own where the server is root."""

from __future__ import annotations

import os

from sqlalchemy import Connection, select

from phalanx.backends.local.host.unix_user import UserError, identity_named
from phalanx.server.options import Options
from phalanx.server.store.tables import users
from phalanx.workload.job import UnixIdentity

UID_FIRST = (0x7000_0000, 40_000)
"""Where the numbers of accounts without a Unix user of their own begin. The first range is one that neither systemd nor
the tools for containers give to anything (systemd's UIDS-GIDS); containers that have 65,536 numbers have the second.
"""

TRIED = 1_000
"""A range is taken if this number of it can be taken on."""


def identity_of(connection: Connection, options: Options, user: str) -> UnixIdentity | None:
    """The Unix user of an account as it is now; None stands for the user that the server is, which is not root."""
    if options.backend != "local":
        return None
    row = connection.execute(select(users.c.number, users.c.unix_user).where(users.c.name == user)).one()
    name = row.unix_user or options.job_user
    if name:
        return identity_named(name)
    if options.uid_first:
        return UnixIdentity(options.uid_first + row.number, options.uid_first + row.number)
    if os.getuid() == 0:
        raise UserError(f"user '{user}': it has no Unix user, and tasks never run as root: `phalanx users unix-user`")
    return None


def find_uid_first() -> int:
    """Where a range of Unix users begins that this process can take on; 0 if there is none."""
    return next((first for first in UID_FIRST if _can_become(first + TRIED)), 0)


def _can_become(uid: int) -> bool:
    """Whether this process could become a user: tried, because capabilities, maps and filters all may forbid it."""
    child = os.fork()
    if not child:
        try:
            os.setgroups([uid])
            os.setgid(uid)
            os.setuid(uid)
        except OSError:
            os._exit(1)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
