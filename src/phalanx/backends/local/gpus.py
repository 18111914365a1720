"""The GPUs of this machine, as NVIDIA's driver tells of them through NVML (the package nvidia-ml-py)."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU."""

    uuid: str
    name: str
    memory_mb: int


def find_gpus() -> tuple[Gpu, ...]:
    """All GPUs of this machine by PCI order; none where there is no driver, or no package to ask it with."""
    try:
        pynvml = import_module("pynvml")
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return tuple(
            Gpu(
                _text(pynvml.nvmlDeviceGetUUID(handle)),
                _text(pynvml.nvmlDeviceGetName(handle)),
                int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20,
            )
            for handle in handles
        )
    finally:
        pynvml.nvmlShutdown()


def _text(value: object) -> str:
    """Older versions of the package give bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
