"""Control groups: what keeps a task within its CPU and memory, and says whether it ran out of memory.

Version 2 has one tree for all controllers; version 1, which many machines still mount beside it, one a controller.
"""

from __future__ import annotations

import os
from zlib import crc32

from phalanx.backends.local.attempt_files import Grounds

PERIOD_US = 100_000
HERD = "phalanx"
NOWHERE: Grounds = {"cpu": "", "memory": ""}


def find_grounds() -> Grounds:
    """Where this process may make control groups, per controller."""
    grounds = NOWHERE.copy()
    given = os.environ.get("PHALANX_CGROUP", "")
    for controller, path in ({"": given} if given else _own_groups()).items():
        if not controller:
            grounds |= _divided(path)
        elif not grounds[controller] and _makes(f"{path}/{HERD}"):
            grounds[controller] = f"{path}/{HERD}"
    return grounds


def why_not(grounds: Grounds, controller: str) -> str:
    """Why a controller is of no use here, for people; empty if it is."""
    if grounds[controller]:
        return ""
    return f"no control group with the {controller} controller can be made here; give one as PHALANX_CGROUP"


def _own_groups() -> dict[str, str]:
    """The control groups of this process as folders, by controller; version 2 under the empty name."""
    mounts = _mounts()
    found: dict[str, str] = {}
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, names, path = line.rstrip("\n").split(":", 2)
            for name in names.split(","):
                if name in ("", "cpu", "memory") and name in mounts:
                    found[name] = (mounts[name] + path).rstrip("/")
    return found


def _mounts() -> dict[str, str]:
    found: dict[str, str] = {}
    with open("/proc/self/mounts") as file:
        for line in file:
            _, folder, kind, options, *_ = line.split()
            if kind == "cgroup2":
                found[""] = folder
            elif kind == "cgroup":
                found.update((name, folder) for name in options.split(",") if name in ("cpu", "memory"))
    return found


def _divided(path: str) -> Grounds:
    """What the nearest group of version 2 gives that can be divided: one without processes of its own, or the root."""
    root = _mounts().get("", path)
    while True:
        usable = _unified(path)
        if usable or len(path) <= len(root):
            return dict.fromkeys(usable, f"{path}/{HERD}")
        path = os.path.dirname(path)


def _unified(path: str) -> list[str]:
    """The controllers that groups below a group of version 2 get."""
    usable = []
    for controller in ("cpu", "memory"):
        try:
            write(f"{path}/cgroup.subtree_control", f"+{controller}")
            os.makedirs(f"{path}/{HERD}", exist_ok=True)
            write(f"{path}/{HERD}/cgroup.subtree_control", f"+{controller}")
        except OSError:
            continue
        usable.append(controller)
    return usable


def _makes(path: str) -> bool:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError:
        return False
    return os.access(f"{path}/cgroup.procs", os.W_OK)


def pen_name(folder: str, job: str, attempt: int, rank: int) -> str:
    """The name of a task's groups. Two servers of one machine may have jobs of the same number."""
    return f"{job}.{attempt}.{crc32(folder.encode()):08x}.{rank}"


class Pen:
    """The control groups of one task."""

    def __init__(self, grounds: Grounds, name: str) -> None:
        self._cpu = f"{grounds['cpu']}/{name}" if grounds["cpu"] else ""
        self._memory = f"{grounds['memory']}/{name}" if grounds["memory"] else ""
        self._folders = tuple(dict.fromkeys(folder for folder in (self._cpu, self._memory) if folder))

    def make(self, cpus_milli: int, memory_mb: int) -> None:
        """Makes the groups with their limits; 0 is none."""
        for folder in self._folders:
            os.makedirs(folder, exist_ok=True)
        if self._cpu and cpus_milli:
            quota_us = cpus_milli * PERIOD_US // 1000
            if not _write_if_there(f"{self._cpu}/cpu.max", f"{quota_us} {PERIOD_US}"):
                write(f"{self._cpu}/cpu.cfs_quota_us", str(quota_us))
        if self._memory and memory_mb:
            if _write_if_there(f"{self._memory}/memory.max", str(memory_mb << 20)):
                _write_if_there(f"{self._memory}/memory.swap.max", "0")
                _write_if_there(f"{self._memory}/memory.oom.group", "1")
            else:
                write(f"{self._memory}/memory.limit_in_bytes", str(memory_mb << 20))

    def limit_memory(self, memory_mb: int) -> None:
        """Gives those inside another limit, where there is one."""
        if self._memory and memory_mb and not _write_if_there(f"{self._memory}/memory.max", str(memory_mb << 20)):
            write(f"{self._memory}/memory.limit_in_bytes", str(memory_mb << 20))

    def take(self, pid: int) -> None:
        """Puts a process in, and so all it will bring forth."""
        for folder in self._folders:
            write(f"{folder}/cgroup.procs", str(pid))

    def pids(self) -> list[int]:
        """The processes in it."""
        for folder in self._folders:
            try:
                with open(f"{folder}/cgroup.procs") as file:
                    return [int(line) for line in file]
            except FileNotFoundError:
                return []
        return []

    def oom_kills(self) -> int:
        """How often the kernel killed a process in here for want of memory."""
        for name in ("memory.events", "memory.oom_control"):
            try:
                with open(f"{self._memory}/{name}") as file:
                    counts = dict(line.split() for line in file)
            except FileNotFoundError:
                continue
            return int(counts.get("oom_kill", "0"))
        return 0

    def remove(self) -> None:
        """Removes the groups; one that still holds a dying process is left."""
        for folder in self._folders:
            try:
                os.rmdir(folder)
            except OSError:
                continue


def write(path: str, text: str) -> None:
    """Writes to a control file."""
    with open(path, "w") as file:
        file.write(text)


def _write_if_there(path: str, text: str) -> bool:
    if not os.path.exists(path):
        return False
    write(path, text)
    return True
