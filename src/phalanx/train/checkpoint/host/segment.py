"""A stretch of shared memory, mapped here, and pinned for CUDA where there is one."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    import torch

PIN_BYTES = 64 << 20
"""Memory is pinned piece by piece: the driver's locks are held for one, and training's launches wait as long."""

PAUSE = 1.0
"""How long training has the driver after a piece, in multiples of what that took. None if a snapshot waits."""

_DRIVER = threading.Lock()
"""One piece at a time: several threads would hand the driver's locks to each other past training's."""


class Segment:
    """Shared memory behind a file descriptor, as bytes and as a tensor of bytes."""

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.fd = fd
        self.size = os.fstat(fd).st_size
        self._map = mmap.mmap(fd, self.size)
        self.view = memoryview(self._map)
        self._pins: list[Future[None]] = []
        self.is_awaited = False

    @cached_property
    def bytes(self) -> torch.Tensor:
        """The same memory as a tensor. The process that only forwards bytes gets by without torch."""
        import torch

        return torch.frombuffer(self._map, dtype=torch.uint8)

    def pin(self, pool: ThreadPoolExecutor, *, is_fresh: bool) -> None:
        """Begins to pin the memory, so that copies run at full speed and by themselves. Fresh memory is touched too."""
        if self._pins:
            return
        self.bytes  # noqa: B018 (made before several threads ask for it)
        for start in range(0, self.size, PIN_BYTES):
            self._pins.append(pool.submit(self._pin, start, min(start + PIN_BYTES, self.size), is_fresh))

    @property
    def is_being_pinned(self) -> bool:
        return any(not pin.done() for pin in self._pins)

    @property
    def is_pinned(self) -> bool:
        """Whether all is pinned. What CUDA refused to pin never is; `await_pins` says why."""
        return bool(self._pins) and all(pin.done() and pin.exception() is None for pin in self._pins)

    def await_end_of_pinning(self) -> None:
        """Waits until nothing is being pinned any more, whatever has come of it."""
        self.is_awaited = True
        wait(self._pins)

    def await_pins(self) -> None:
        """Waits until all is pinned."""
        self.is_awaited = True
        for pin in self._pins:
            pin.result()

    def close(self) -> None:
        """Lets go of the memory. A tensor that still looks at it keeps the mapping, and the memory."""
        for number, pin in enumerate(self._pins):
            if not pin.cancel() and pin.exception() is None:
                _cudart().cudaHostUnregister(self.bytes.data_ptr() + number * PIN_BYTES)
        self._pins = []
        self.__dict__.pop("bytes", None)
        self.view.release()
        with contextlib.suppress(BufferError):
            self._map.close()
        os.close(self.fd)

    def _pin(self, start: int, stop: int, is_fresh: bool) -> None:
        if is_fresh:
            # By several threads here; CUDA would touch the pages one by one. The first page may be in use by now.
            self.bytes[max(start, mmap.PAGESIZE) : stop].zero_()
        with _DRIVER:
            began_s = time.monotonic()
            error = int(_cudart().cudaHostRegister(self.bytes.data_ptr() + start, stop - start, 0))
            if not self.is_awaited:
                time.sleep(PAUSE * (time.monotonic() - began_s))
        if error:
            raise PhalanxError(
                f"CUDA refused to pin {(stop - start) / 1e9:.1f} GB of host memory (error {error}): raise the limit on "
                f"locked memory (`ulimit -l`), or give the host tier fewer slots"
            )


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
