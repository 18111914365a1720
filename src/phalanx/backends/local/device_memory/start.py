"""How the process that moves device memory is started. Of the standard library only: shepherds load this."""

from __future__ import annotations

import os

_ROOT = os.path.abspath(f"{__file__}/../../../../..")
PROGRAM = (
    f"import sys; sys.path.append({_ROOT!r}); from phalanx.backends.local.device_memory.process import main; main()"
)

DRIVER_VARIABLE = "PHALANX_CUDA_DRIVER"
"""Names another library with the driver's calls, for trials on machines without a GPU."""
