"""NVIDIA's driver, as far as it checkpoints processes: the calls of `cuda.h`, by ctypes.

A process is *locked* (its CUDA calls wait), then *checkpointed* (its device memory is in its own host memory, its
devices are free); *restored* and *unlocked* it goes on. Drivers from 570 on can; from 580 on another GPU of the same
chip may take the place of the old one.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from enum import IntEnum

from phalanx.backends.local.device_memory.start import DRIVER_VARIABLE

LIBRARY = "libcuda.so.1"

OUT_OF_MEMORY = 2
_UUID_BYTES = 16


class ProcessState(IntEnum):
    """Where the driver has a process."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3


class DriverError(Exception):
    """A call of the driver that did not succeed."""

    def __init__(self, call: str, pid: int, code: int, name: str) -> None:
        super().__init__(f"{call} of process {pid}: {name} ({code})")
        self.code = code


class NoDriverError(Exception):
    """There is no driver that can do this. The words say why."""


class _LockArgs(ctypes.Structure):
    _fields_ = (("timeout_ms", ctypes.c_uint), ("reserved0", ctypes.c_uint), ("reserved1", ctypes.c_uint64 * 7))


class _GpuPair(ctypes.Structure):
    _fields_ = (("old", ctypes.c_ubyte * _UUID_BYTES), ("new", ctypes.c_ubyte * _UUID_BYTES))


class _RestoreArgs(ctypes.Structure):
    _fields_ = (
        ("pairs", ctypes.POINTER(_GpuPair)),
        ("count", ctypes.c_uint),
        ("reserved", ctypes.c_char * (52 - ctypes.sizeof(ctypes.c_void_p))),
        ("reserved1", ctypes.c_uint64),
    )


class Driver:
    """The calls. Each waits until it is done."""

    def __init__(self) -> None:
        name = os.environ.get(DRIVER_VARIABLE) or LIBRARY
        try:
            self._cuda = ctypes.CDLL(name)
        except OSError as error:
            raise NoDriverError(f"there is no NVIDIA driver here ({error})") from error
        if not hasattr(self._cuda, "cuCheckpointProcessLock"):
            raise NoDriverError("the NVIDIA driver is older than 570: it cannot checkpoint processes")
        # A restore needs a driver that is awake.
        code = self._cuda.cuInit(0)
        if code:
            raise NoDriverError(f"the NVIDIA driver does not start: {self._name(code)} ({code})")

    def state(self, pid: int) -> ProcessState | None:
        """Where a process is; None if it does not use CUDA."""
        found = ctypes.c_int()
        if self._cuda.cuCheckpointProcessGetState(ctypes.c_int(pid), ctypes.byref(found)):
            return None
        return ProcessState(found.value)

    def lock(self, pid: int, timeout_ms: int) -> None:
        """Has the CUDA calls of a process wait, once what it has begun on its devices is done."""
        self._call("cuCheckpointProcessLock", pid, _LockArgs(timeout_ms=timeout_ms))

    def checkpoint(self, pid: int) -> None:
        """Moves the device memory of a locked process to the host."""
        self._call("cuCheckpointProcessCheckpoint", pid, None)

    def restore(self, pid: int, devices: Mapping[str, str]) -> None:
        """Moves it back: to the same devices, or to those that are named by the UUIDs of the old ones."""
        if all(old == new for old, new in devices.items()):
            self._call("cuCheckpointProcessRestore", pid, None)
            return
        pairs = (_GpuPair * len(devices))(*(_GpuPair(_uuid(old), _uuid(new)) for old, new in devices.items()))
        self._call("cuCheckpointProcessRestore", pid, _RestoreArgs(pairs=pairs, count=len(devices)))

    def unlock(self, pid: int) -> None:
        """Lets a locked process go on."""
        self._call("cuCheckpointProcessUnlock", pid, None)

    def _call(self, name: str, pid: int, args: ctypes.Structure | None) -> None:
        code = getattr(self._cuda, name)(ctypes.c_int(pid), ctypes.byref(args) if args is not None else None)
        if code:
            raise DriverError(name, pid, code, self._name(code))

    def _name(self, code: int) -> str:
        text = ctypes.c_char_p()
        if self._cuda.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text)) or text.value is None:
            return "an error that the driver does not name"
        return text.value.decode(errors="replace")


def _uuid(name: str) -> ctypes.Array[ctypes.c_ubyte]:
    """The bytes of what NVML calls `GPU-8f…`."""
    digits = name.removeprefix("GPU-").replace("-", "")
    return (ctypes.c_ubyte * _UUID_BYTES)(*bytes.fromhex(digits))
