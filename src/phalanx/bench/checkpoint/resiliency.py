"""Blocked time of a save, recovery from a killed trainer and memory, beside the package lm-resiliency."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phalanx.bench.checkpoint.layers import Size
from phalanx.bench.checkpoint.resiliency_trainer import WAYS
from phalanx.bench.row import Row, Tell, row

MODULE = "lm_resiliency"
INSTALL = "uv pip install --no-deps lm-resiliency==0.2.0"
"""Without what it depends on: it asks for an older torch than the one that is here, and works with this one."""

FULL, QUICK = Size(1000, 64), Size(8, 16)
DEVICE = Size(1000, 512)
"""For a GPU: 3.2 GB of state in 8,000 tensors."""


def run(size: Size, tell: Tell) -> Iterator[Row]:
    """All ways that can be had here, each in trainers of its own; the rows of a way as soon as it is done."""
    ways = WAYS
    if importlib.util.find_spec(MODULE) is None:
        tell(f"resiliency: lm-resiliency is not installed, so ours stands alone; to have it beside: {INSTALL}")
        ways = tuple(way for way in WAYS if not way.startswith("lm-"))
    for way in ways:
        tell(f"resiliency: {way}, {size.tensors:,} tensors")
        yield from rows_of(way, size, tell)


def rows_of(way: str, size: Size, tell: Tell) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        job = f"bench {uuid.uuid4()}"
        arguments = [way, str(size.layers), str(size.width), folder, job]
        with start(arguments) as first:
            trained = said(first, tell)
            # At once after the last copy in memory is whole.
            first.send_signal(signal.SIGKILL)
        with start([*arguments, "--resume"]) as second:
            resumed = said(second, tell)
    if trained is None or resumed is None:
        return [row(f"{way}: a save, in the training thread", None, "ms")]
    is_back = resumed["step"] is not None
    added = [row(f"{way}: added to training by a save", trained["added_s"] * 1e3, "ms")] if "added_s" in trained else []
    return [
        *added,
        row(f"{way}: a save, in the training thread", trained["call_s"] * 1e3, "ms"),
        row(f"{way}: a save, processor time of that thread", trained["processor_s"] * 1e3, "ms"),
        row(f"{way}: the first save", trained["first_s"] * 1e3, "ms"),
        row(f"{way}: host memory / state", trained["memory_bytes"] / trained["state_bytes"], "×"),
        row(f"{way}: steps lost to kill -9", trained["step"] - (resumed["step"] or 0), "steps"),
        row(f"{way}: brought back in", resumed["seconds"] if is_back else None, "s"),
    ]


def start(arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "phalanx.bench.checkpoint.resiliency_trainer", *arguments]
    home = str(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def said(trainer: subprocess.Popen[str], tell: Tell) -> dict[str, Any] | None:
    """What a trainer says when it has come so far; None if it ended before."""
    assert trainer.stdout is not None
    line = trainer.stdout.readline()
    if not line:
        tell(f"resiliency: {' '.join(map(str, trainer.args))} ended with {trainer.wait()} before it was done")  # type: ignore[arg-type]
        return None
    facts: dict[str, Any] = json.loads(line)
    return facts
