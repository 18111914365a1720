"""The sandbox of tasks that run as the server's own user: a mount namespace in which the server's folders are empty.

A server that is not root cannot give its tasks another user, so permissions do not keep them from the admin's token. In
a user namespace of their own they may mount, and what is mounted over a folder hides it. They cannot undo that: the
capabilities end with the exec, a namespace made later inherits these mounts locked, and a process of another user
namespace may not be traced, so that no way leads through /proc/PID/root of the server.
"""

from __future__ import annotations

import os

from phalanx.backends.local.attempt_files import Sandbox
from phalanx.backends.local.host.kernel import (
    BIND,
    NEW_MOUNTS,
    NEW_USERS,
    READ_ONLY,
    RECURSIVE,
    REMOUNT,
    join_namespaces,
    mount,
    unshare,
)

KEPT_FLAGS = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME | os.ST_RELATIME
"""What a mount forbids stays forbidden: the kernel refuses a namespace that would take it back."""


def enter(sandbox: Sandbox) -> None:
    """Gives this process the sandbox. It must not have threads."""
    uid, gid = os.getuid(), os.getgid()
    unshare(NEW_USERS | NEW_MOUNTS)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        _write(f"/proc/self/{name}", text)
    shown = [(os.open(path, os.O_PATH), path) for path in (*sandbox["read"], *sandbox["write"])]
    for path in sandbox["hide"]:
        _pin_way_to(path)
        _cover(path)
    for handle, path in shown:
        os.makedirs(path, exist_ok=True)
        mount(f"/proc/self/fd/{handle}", path, flags=BIND)
        os.close(handle)
    for path in (*sandbox["read"], *sandbox["hide"]):
        if os.path.isdir(path):
            _make_read_only(path)


def join(pid: int) -> None:
    """Has this process share the sandbox of a task."""
    join_namespaces(pid, NEW_USERS)
    join_namespaces(pid, NEW_MOUNTS)


def obstacle() -> str:
    """Why this machine cannot give tasks the sandbox; empty if it can."""
    listen, tell = os.pipe()
    child = os.fork()
    if not child:
        try:
            enter(Sandbox(hide=["/proc"], read=[], write=[]))
        except OSError as error:
            os.write(tell, (error.strerror or "it failed").encode())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(listen, "rb") as told:
        why = told.read().decode()
    os.waitpid(child, 0)
    return f"user namespaces: {why}" if why else ""


def _pin_way_to(path: str) -> None:
    """Makes each folder above a mount point, which no task can rename: it would be found beside what is covered."""
    parts = path.strip("/").split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        folder = "/" + "/".join(parts[:depth])
        mount(folder, folder, flags=BIND | RECURSIVE)


def _cover(path: str) -> None:
    if os.path.isdir(path):
        mount("phalanx", path, "tmpfs", options="mode=0755,size=1m")
    else:
        mount(os.devnull, path, flags=BIND)


def _make_read_only(path: str) -> None:
    kept = os.statvfs(path).f_flag & KEPT_FLAGS
    mount("", path, flags=REMOUNT | BIND | READ_ONLY | _mount_flags(kept))


def _mount_flags(flags: int) -> int:
    """statvfs and mount number these alike but for `relatime`."""
    relative = (1 << 21) if flags & os.ST_RELATIME else 0
    return (flags & ~os.ST_RELATIME) | relative


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
