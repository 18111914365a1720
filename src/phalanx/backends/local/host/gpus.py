"""The GPUs of this machine, as NVIDIA's driver tells of them through NVML (the package nvidia-ml-py)."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError

PCI = Path("/sys/bus/pci/devices")
NVIDIA, DISPLAY = "0x10de", "0x03"
"""The vendor, and how the class of graphics and 3D devices begins."""


class DriverError(PhalanxError):
    """NVIDIA's driver is here and cannot be used."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU."""

    uuid: str
    name: str
    memory_mb: int


def find_gpus() -> tuple[Gpu, ...]:
    """All GPUs of this machine by PCI order; none where there is no driver, or no package to ask it with.

    A driver that is there and does not work raises DriverError: its GPUs are not none.
    """
    try:
        pynvml = import_module("pynvml")
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if _means_no_driver(pynvml, error):
            return ()
        raise _broken(error) from None
    try:
        return _listed(pynvml)
    except pynvml.NVMLError as error:
        raise _broken(error) from None
    finally:
        pynvml.nvmlShutdown()


def _listed(pynvml: Any) -> tuple[Gpu, ...]:
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    return tuple(
        Gpu(
            _text(pynvml.nvmlDeviceGetUUID(handle)),
            _text(pynvml.nvmlDeviceGetName(handle)),
            int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20,
        )
        for handle in handles
    )


def _means_no_driver(pynvml: Any, error: Any) -> bool:
    """Whether there is nothing to be broken. The library alone is also in images and on nodes without a GPU."""
    if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return True
    return bool(error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED) and not _has_nvidia_device()


def _has_nvidia_device() -> bool:
    try:
        return any(
            (device / "vendor").read_text().strip() == NVIDIA and (device / "class").read_text().startswith(DISPLAY)
            for device in PCI.iterdir()
        )
    except OSError:
        return False


def _broken(error: Exception) -> DriverError:
    return DriverError(
        f"NVIDIA's driver cannot be used: {error}; repair it until `nvidia-smi` works, or go without its GPUs: "
        "`up --gpus 0` for CPUs only, `up --simulate` for simulated GPUs"
    )


def _text(value: object) -> str:
    """Older versions of the package give bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
