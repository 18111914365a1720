"""The state of a rank as bytes: sent to a peer, or kept in a file after a failure."""

from __future__ import annotations

import fcntl
import io
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from phalanx.errors import PhalanxError

CHUNK = 64 << 20
NAME = re.compile(r"step-(\d{12})\.state")


def refuse_sharded(state: Mapping[str, Any]) -> None:
    """A state of which each rank has a part cannot come from one peer."""
    for name, part in state.items():
        for key, value in part.state_dict().items():
            if type(value).__name__ in ("DTensor", "ShardedTensor"):
                raise PhalanxError(
                    f"{name}.{key} is sharded ({type(value).__name__}), so that no peer has all of it: train with "
                    "phalanx.train.checkpoint.Checkpointer, which keeps the parts of every rank; "
                    "phalanx.train.elastic is for states that are whole on each rank"
                )


def packed(state: Mapping[str, Any], completed: int) -> bytes:
    buffer = io.BytesIO()
    torch.save({"completed": completed, "parts": {name: part.state_dict() for name, part in state.items()}}, buffer)
    return buffer.getvalue()


def unpack(content: bytes, state: Mapping[str, Any]) -> int:
    """Loads the parts; how many steps are in them. Bytes are a peer's or this job's own, and trusted as such."""
    said = torch.load(io.BytesIO(content), map_location="cpu", weights_only=False)
    missing = sorted(set(state) - set(said["parts"]))
    if missing:
        raise PhalanxError(f"the state of a peer has no part {missing[0]!r}: all ranks must run the same program")
    for name, part in state.items():
        part.load_state_dict(said["parts"][name])
    return int(said["completed"])


def send(content: bytes, to: int) -> None:
    dist.send(torch.tensor([len(content)]), to)
    for first in range(0, len(content), CHUNK):
        dist.send(torch.frombuffer(bytearray(content[first : first + CHUNK]), dtype=torch.uint8), to)


def receive(source: int) -> bytes:
    """All of it or an error: nothing is loaded before."""
    length = torch.zeros(1, dtype=torch.int64)
    dist.recv(length, source)
    parts = []
    left = int(length.item())
    while left:
        part = torch.empty(min(CHUNK, left), dtype=torch.uint8)
        dist.recv(part, source)
        parts.append(part.numpy().tobytes())
        left -= len(part)
    return b"".join(parts)


def save(folder: Path, state: Mapping[str, Any], completed: int) -> None:
    """Keeps the state of a step, once for all ranks of this machine, and no older one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{completed:012d}.state"
    with (folder / "lock").open("w") as lock:
        # Others have the same state, and leave it to the first.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            file.write(packed(state, completed))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        for older in saved(folder)[:-1]:
            older.unlink(missing_ok=True)


def saved(folder: Path) -> list[Path]:
    """The kept states, the furthest last."""
    return sorted(path for path in folder.glob("step-*.state") if NAME.fullmatch(path.name))


def load_saved(folder: Path, state: Mapping[str, Any]) -> int:
    """Loads the furthest kept state; 0 where there is none."""
    for path in reversed(saved(folder)):
        with suppress(FileNotFoundError):
            return unpack(path.read_bytes(), state)
    return 0
