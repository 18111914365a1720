"""NVML for tests: a `pynvml` that tells of GPUs that are not there, or of a driver that is broken."""

from __future__ import annotations

from pathlib import Path

MODULE = '''
class NVMLError(Exception):
    """As nvidia-ml-py has it: `value` is the code of the error."""

    def __init__(self, value):
        super().__init__(f"error {{value}}")
        self.value = value

    def __str__(self):
        return TEXTS[self.value]


NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_LIB_RM_VERSION_MISMATCH = 9, 12, 18
NVML_ERROR_GPU_IS_LOST = 15
TEXTS = {{
    9: "Driver Not Loaded",
    12: "NVML Shared Library Not Found",
    15: "GPU is lost",
    18: "Driver/library version mismatch",
}}
GPUS, INIT_ERROR, DEVICE_ERROR = {gpus}, {init_error}, {device_error}


def nvmlInit():
    if INIT_ERROR:
        raise NVMLError(INIT_ERROR)


def nvmlShutdown():
    pass


def nvmlDeviceGetCount():
    return GPUS


def nvmlDeviceGetHandleByIndex(index):
    if DEVICE_ERROR:
        raise NVMLError(DEVICE_ERROR)
    return index


def nvmlDeviceGetUUID(handle):
    return f"GPU-{{handle:04}}"


def nvmlDeviceGetName(handle):
    return "NVIDIA H100 80GB HBM3"


class _Memory:
    total = 80 << 30


def nvmlDeviceGetMemoryInfo(handle):
    return _Memory
'''


def write_nvml(folder: Path, gpus: int = 0, init_error: int = 0, device_error: int = 0) -> str:
    """Writes the module into a folder, for `PYTHONPATH`."""
    folder.mkdir(exist_ok=True)
    (folder / "pynvml.py").write_text(MODULE.format(gpus=gpus, init_error=init_error, device_error=device_error))
    return str(folder)
