"""Unix users that tasks run as: found by name, checked again before they are used, and never root."""

from __future__ import annotations

import os
import pwd

from phalanx.errors import PhalanxError
from phalanx.workload.job import UnixIdentity


class UserError(PhalanxError):
    """A user that tasks cannot run as."""


def identity_named(name: str) -> UnixIdentity:
    """The Unix user of a name on this machine."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise UserError(f"Unix user '{name}': this machine has no such user; add it, or run as another") from None
    if entry.pw_uid == 0:
        raise UserError(f"Unix user '{name}': tasks never run as root; name an ordinary user")
    if os.getuid() not in (0, entry.pw_uid):
        raise UserError(f"Unix user '{name}': only a server that runs as root can run tasks as another user")
    return UnixIdentity(entry.pw_uid, entry.pw_gid, name)


def task_ids(identity: UnixIdentity | None) -> list[int]:
    """User, group and further groups to take on; nothing for the user that this process is."""
    if identity is None:
        return []
    if identity.uid == 0:
        raise UserError("tasks never run as root: have the job submitted again")
    if identity.user and identity_named(identity.user) != identity:
        raise UserError(f"Unix user '{identity.user}' is another than when the job was submitted: submit it again")
    if identity.uid == os.getuid():
        return []
    if os.getuid() != 0:
        raise UserError(f"Unix user {identity.uid}: only a server that runs as root can run tasks as another user")
    groups = os.getgrouplist(identity.user, identity.gid) if identity.user else [identity.gid]
    return [identity.uid, identity.gid, *groups]


def home_of(name: str) -> str:
    """The home of a user."""
    return pwd.getpwnam(name).pw_dir
