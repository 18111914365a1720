"""Saved simulations: a run at a moment, in a file, to go on from or to fork.

A run is saved as it is in memory, so that it goes on to the byte as if it had never stopped. Only classes of phalanx
and plain data are read back: a file that asks for anything else, which could be made to run code, is refused.
"""

from __future__ import annotations

import io
import pickle
import zlib
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.simulate.simulation import Simulation

MAGIC = b"phalanx simulation "

PLAIN = {
    "builtins": ("set", "frozenset", "bytearray", "complex", "range", "slice", "object"),
    "collections": ("deque", "OrderedDict"),
}
"""What a saved run may hold beside classes of phalanx and what pickle has signs of its own for."""


class SavedError(PhalanxError):
    """A file that is no saved simulation, or not one of this release."""


def save(simulation: Simulation, path: str) -> None:
    """Writes a run at the moment it has reached."""
    header = MAGIC + version("phalanx").encode() + b"\n"
    content = zlib.compress(_written(simulation), level=1)
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
    release = header.removeprefix(MAGIC).decode("ascii", "replace")
    if release != version("phalanx"):
        raise SavedError(f"{path}: saved by phalanx {release}, this is {version('phalanx')}; resume with the same")
    try:
        simulation = _Reader(io.BytesIO(zlib.decompress(content))).load()
    except (pickle.UnpicklingError, zlib.error, EOFError, AttributeError, ImportError, IndexError, TypeError) as error:
        raise SavedError(f"{path}: torn or not a saved simulation: {error}") from error
    if not isinstance(simulation, Simulation):
        raise SavedError(f"{path}: holds a {type(simulation).__name__}, expected a simulation")
    return simulation


def fork(simulation: Simulation) -> Simulation:
    """A copy that goes its own way."""
    copy = pickle.loads(_written(simulation))
    assert isinstance(copy, Simulation)
    return copy


def _written(simulation: Simulation) -> bytes:
    content = io.BytesIO()
    _Writer(content, protocol=5).dump(simulation)
    return content.getvalue()


class _Writer(pickle.Pickler):
    """Writes the members of enums by their values: some releases of Python would have them looked up by `getattr`."""

    def reducer_override(self, obj: Any) -> Any:
        return (type(obj), (obj.value,)) if isinstance(obj, Enum) else NotImplemented


class _Reader(pickle.Unpickler):
    """Builds nothing but classes of phalanx and plain data."""

    def find_class(self, module: str, name: str) -> type:
        if module.startswith("phalanx."):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__.startswith("phalanx."):
                return found
        elif name in PLAIN.get(module, ()):
            found = super().find_class(module, name)
            if isinstance(found, type):
                return found
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no saved simulation holds")
