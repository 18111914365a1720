"""How much device memory processes take, as NVIDIA's driver tells through NVML (the package nvidia-ml-py)."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Any


def used_mb() -> dict[int, int]:
    """Device memory by process, over all devices; nothing where the driver does not tell, or cannot be asked."""
    try:
        pynvml = import_module("pynvml")
        pynvml.nvmlInit()
    except Exception:
        # Without the package or the driver nothing is known.
        return {}
    try:
        return _by_process(pynvml)
    except pynvml.NVMLError:
        return {}
    finally:
        pynvml.nvmlShutdown()


def _by_process(pynvml: Any) -> dict[int, int]:
    found: dict[int, int] = {}
    for number in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(number)
        for each in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            # In a virtual machine, or for one of another container, the driver may know no amount.
            found[each.pid] = found.get(each.pid, 0) + ((each.usedGpuMemory or 0) >> 20)
    return found


def used_by(pids: Collection[int]) -> int:
    """Device memory that some processes take together, in MB."""
    return sum(mb for pid, mb in used_mb().items() if pid in pids)


def host_free_mb() -> int:
    """Memory of this machine that can be had without swapping."""
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) >> 10
    return 0
