"""Saved simulations: a run at a moment, in a file, to go on from or to fork.

A run is saved as it is in memory, so that it goes on to the byte as if it had never stopped. Other code has other
things in memory, or does other things with them: it is refused. Only classes of phalanx and plain data are read back: a
file that asks for anything else, which could be made to run code, is refused, too.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from phalanx.engine.fold.snapshot import UNREADABLE, read, written
from phalanx.errors import PhalanxError
from phalanx.simulate.code import code_of
from phalanx.simulate.simulation import Simulation

MAGIC = b"phalanx simulation "

TORN = tuple(kind for kind in UNREADABLE if kind is not ValueError)
"""What reading a torn file may raise. A policy that this process does not know raises a ValueError that says so."""


class SavedError(PhalanxError):
    """A file that is no saved simulation, or not one of this code."""


def save(simulation: Simulation, path: str) -> None:
    """Writes a run at the moment it has reached."""
    header = MAGIC + code_of(()).encode() + b"\n"
    content = zlib.compress(written(simulation), level=1)
    target = Path(path)
    beside = target.with_name(target.name + ".part")
    try:
        beside.write_bytes(header + content)
        beside.replace(target)
    except OSError as error:
        raise SavedError(f"{path}: {error.strerror}") from error


def load(path: str) -> Simulation:
    """Reads a saved run."""
    try:
        header, _, content = Path(path).read_bytes().partition(b"\n")
    except OSError as error:
        raise SavedError(f"{path}: {error.strerror}") from error
    if not header.startswith(MAGIC):
        raise SavedError(f"{path}: not a saved simulation; expected a file written by `phalanx simulate --save`")
    saved_by, this = header.removeprefix(MAGIC).decode("ascii", "replace"), code_of(())
    if saved_by != this:
        raise SavedError(f"{path}: saved by phalanx {saved_by}, this is {this}; go on with the same, or run it again")
    try:
        return read(zlib.decompress(content), Simulation)
    except TORN as error:
        raise SavedError(f"{path}: torn or not a saved simulation: {error}") from error


def fork(simulation: Simulation) -> Simulation:
    """A copy that goes its own way."""
    return read(written(simulation), Simulation)
