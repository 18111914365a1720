"""Unix users that tasks run as."""

from __future__ import annotations

import os
import pwd

from phalanx.errors import PhalanxError


class UserError(PhalanxError):
    """A user that tasks cannot run as."""


def user_ids(name: str) -> list[int]:
    """User, group and further groups of a user; nothing for the one we are."""
    if not name:
        return []
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise UserError(f"Unix user '{name}': this machine has no such user; add it, or run as another") from None
    if entry.pw_uid == os.getuid():
        return []
    if os.getuid() != 0:
        raise UserError(f"Unix user '{name}': only a server that runs as root can run tasks as another user")
    return [entry.pw_uid, entry.pw_gid, *os.getgrouplist(name, entry.pw_gid)]


def home_of(name: str) -> str:
    """The home of a user."""
    return pwd.getpwnam(name).pw_dir
