"""What the kernel offers and Python does not: prctl(2), unshare(2), setns(2), mount(2), inotify(7)."""

from __future__ import annotations

import ctypes
import os
import signal

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36

NEW_MOUNTS, NEW_USERS = 0x0002_0000, 0x1000_0000
READ_ONLY, REMOUNT, BIND, RECURSIVE, SLAVE = 1, 32, 4096, 16_384, 1 << 19

_IN_MODIFY = 2

KEYCTL = {"x86_64": 250, "aarch64": 219}
"""The number of keyctl(2), which the C library does not have. A kernel without it has no keyrings to leave."""

_JOIN_SESSION_KEYRING = 1

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Has descendants whose parents die become children of this process, so that none is lost sight of."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Has this process killed when its parent dies; at once, if that has happened already."""
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def leave_keyring() -> None:
    """Gives this process a session keyring of its own: the one it was born with is that of the server's log-in."""
    number = KEYCTL.get(os.uname().machine)
    if number is not None:
        _libc.syscall(number, _JOIN_SESSION_KEYRING, None)


def unshare(kinds: int) -> None:
    """Gives this process namespaces of its own."""
    _check(_libc.unshare(kinds))


def join_namespaces(pid: int, kinds: int) -> None:
    """Enters namespaces of another process."""
    handle = os.pidfd_open(pid)
    try:
        _check(_libc.setns(handle, kinds))
    finally:
        os.close(handle)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mounts something for this process's mount namespace."""
    text = [word.encode() or None for word in (source, target, kind, options)]
    _check(_libc.mount(text[0], text[1], text[2], ctypes.c_ulong(flags), text[3]), target)


def _prctl(option: int, value: int) -> None:
    _check(_libc.prctl(option, value, 0, 0, 0))


def _check(result: int, path: str | None = None) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


def watch_writing(folder: str) -> int:
    """A file that is readable whenever something was written to a file in a folder. Each user has few of them."""
    handle: int = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if handle < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if _libc.inotify_add_watch(handle, os.fsencode(folder), _IN_MODIFY) < 0:
        code = ctypes.get_errno()
        os.close(handle)
        raise OSError(code, os.strerror(code), folder)
    return handle
