"""What is taken from a task before its command begins: the server's user, its folders, or neither for an engine."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from phalanx.backends.local.attempt_files import Binds, TaskOrder
from phalanx.backends.local.host.kernel import BIND, NEW_MOUNTS, RECURSIVE, SLAVE, mount, unshare
from phalanx.backends.local.shepherd.tasks import sandbox


def confinement(order: TaskOrder, beside: int = 0) -> Callable[[], None]:
    """What a child does before it becomes a task, or a command beside the task of a process."""
    if "sandbox" in order:
        return partial(sandbox.join, beside) if beside else partial(sandbox.enter, order["sandbox"])
    if "binds" in order and not beside:
        return partial(bind, order["binds"])
    return partial(take_user, order["user"])


def take_user(ids: Sequence[int]) -> None:
    """Becomes another user for good; nothing if there is none to become."""
    if ids:
        uid, gid, *groups = ids
        # The server's own processes write no core files; a job may, where root is let raise the limit again.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.RLIM_INFINITY))
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)


def bind(binds: Binds) -> None:
    """Mounts what a user names where a container engine that is root finds it.

    Each is opened as that user: what they could not reach themselves is not reached by a mount either, and a link
    that is changed meanwhile leads nowhere else. The mounts are this process's own and end with it.
    """
    unshare(NEW_MOUNTS)
    mount("none", "/", flags=RECURSIVE | SLAVE)
    handles = _opened_as(binds["user"], binds["sources"])
    for number, handle in enumerate(handles):
        target = f"{binds['folder']}/{number}"
        source = f"/proc/self/fd/{handle}"
        if os.path.isdir(source):
            os.makedirs(target, mode=0o700, exist_ok=True)
        else:
            os.makedirs(binds["folder"], mode=0o700, exist_ok=True)
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        mount(source, target, flags=BIND | RECURSIVE)


def _opened_as(ids: Sequence[int], paths: Sequence[str]) -> list[int]:
    uid, gid, *groups = ids
    before = os.getgroups(), os.getegid(), os.geteuid()
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    try:
        return [os.open(path, os.O_PATH) for path in paths]
    finally:
        os.seteuid(before[2])
        os.setegid(before[1])
        os.setgroups(before[0])


def write_variables(path: str, variables: Mapping[str, str]) -> None:
    """Writes variables as container engines read them: a line each, as it is, for no other user to see."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.writelines(f"{name}={value}\n" for name, value in variables.items())
