"""A stretch of shared memory, mapped here, and registered with CUDA where there is one."""

from __future__ import annotations

import contextlib
import mmap
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    import torch

REGISTER_BYTES = 1 << 30
"""Pinning goes stretch by stretch, so that copying the first can begin while the rest is being pinned."""


class Segment:
    """Shared memory behind a file descriptor, as bytes and as a tensor of bytes."""

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.fd = fd
        self.size = os.fstat(fd).st_size
        self._map = mmap.mmap(fd, self.size)
        self.view = memoryview(self._map)
        self._registered = 0

    @cached_property
    def bytes(self) -> torch.Tensor:
        """The same memory as a tensor. The process that only forwards bytes gets by without torch."""
        import torch

        return torch.frombuffer(self._map, dtype=torch.uint8)

    @property
    def is_registered(self) -> bool:
        return self._registered >= self.size

    def register(self, up_to: int | None = None) -> None:
        """Pins the memory for CUDA, from where that ended last, so that copies run at full speed and by themselves."""
        end = self.size if up_to is None else min(up_to, self.size)
        while self._registered < end:
            length = min(REGISTER_BYTES, self.size - self._registered)
            error = _cudart().cudaHostRegister(self.bytes.data_ptr() + self._registered, length, 0)
            if int(error):
                raise PhalanxError(
                    f"CUDA refused to pin {length / 1e9:.1f} GB of host memory (error {int(error)}): raise the limit "
                    f"on locked memory (`ulimit -l`), or give the host tier fewer slots"
                )
            self._registered += length

    def close(self) -> None:
        """Lets go of the memory. A tensor that still looks at it keeps the mapping, and the memory."""
        self._unregister()
        self.__dict__.pop("bytes", None)
        self.view.release()
        with contextlib.suppress(BufferError):
            self._map.close()
        os.close(self.fd)

    def _unregister(self) -> None:
        if not self._registered:
            return
        for start in range(0, self._registered, REGISTER_BYTES):
            _cudart().cudaHostUnregister(self.bytes.data_ptr() + start)
        self._registered = 0


def _cudart() -> Any:
    import torch

    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def require_memory(size: int, purpose: str) -> None:
    """Refuses to take more memory than there is: the kernel would answer a touched page with a kill, not an error."""
    available = available_bytes()
    if size > available:
        raise PhalanxError(
            f"{purpose} needs {size / 1e9:.1f} GB of host memory, and {available / 1e9:.1f} GB are available: "
            f"give the host tier fewer slots, or the job more memory"
        )


def available_bytes() -> int:
    """What this process may still take, by the machine and by its control group."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(lines["MemAvailable"].split()[0]) * 1024
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = (group / "memory.max").read_text().strip(), (group / "memory.current").read_text()
    except OSError:
        return available
    return available if limit == "max" else min(available, int(limit) - int(used))
