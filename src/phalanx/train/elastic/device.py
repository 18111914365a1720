"""NCCL within a world: its communicator is made with the world and aborted with it, and no wait for it gets stuck."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist

DEVICE_BACKEND = "cpu:gloo,cuda:nccl"
POLL_S = 0.0002

ERROR_HANDLING = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
UNHANDLED = "0"
"""torchrun's value has the watchdog of NCCL end a process that survived another: here the process aborts by itself."""


class Device:
    """The GPU of this rank. A world is broken up by one thread and waited for by another."""

    def __init__(self) -> None:
        self._is_given_up = False

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Device | None:
        """None where no part of the state lies on a GPU, or NCCL is not there."""
        if not torch.cuda.is_available() or not dist.is_nccl_available():
            return None
        return cls() if any(_is_on_gpu(part.state_dict()) for part in state.values()) else None

    def prepare(self) -> None:
        """Before each group is made, which reads the variable."""
        os.environ[ERROR_HANDLING] = UNHANDLED
        self._is_given_up = False

    def connect(self) -> None:
        """Makes the communicator now, while all ranks are known to be there."""
        dist.all_reduce(torch.zeros(1, device="cuda"))

    def give_up(self) -> None:
        """From another thread than the one that waits."""
        self._is_given_up = True

    def wait(self, timeout_s: float) -> None:
        """Ends when the world is given up, as a synchronization does not: kernels wait for a lost rank for ever."""
        done: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        until_s = time.monotonic() + timeout_s
        while not done.query():
            if self._is_given_up:
                raise RuntimeError("NCCL: the world has ended while this rank waited in a collective")
            if time.monotonic() > until_s:
                raise RuntimeError(f"NCCL: timed out waiting {timeout_s:g} s in a collective")
            time.sleep(POLL_S)

    def abort(self) -> None:
        """Ends the kernels that wait for other ranks."""
        with suppress(RuntimeError):
            dist.group.WORLD._get_backend(torch.device("cuda")).abort()  # type: ignore[union-attr]


def _is_on_gpu(state: Any) -> bool:
    if isinstance(state, torch.Tensor):
        return state.is_cuda
    if isinstance(state, Mapping):
        return any(_is_on_gpu(each) for each in state.values())
    return isinstance(state, list | tuple) and any(_is_on_gpu(each) for each in state)
