"""The outlook: what only the whole State tells, written by the planner now and then for every worker to read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

FILE = "outlook.msgpack"


class Load(msgspec.Struct, frozen=True, array_like=True):
    """What a running job said last: how busy its GPUs are, from 0 to 1, and their memory; -1 for one that does not
    measure.
    """

    gpu_busy: float
    memory_gb: float


class Level(msgspec.Struct, frozen=True, array_like=True):
    """A level of the cluster: the GPUs of the largest gang that could start now inside one of its domains, and the
    domain that has them.
    """

    level: str
    largest_gang_gpus: int
    free: int
    domain: str


class Item(msgspec.Struct, frozen=True):
    """A job that needs attention."""

    kind: str
    job: str
    name: str
    queue: str
    user: str
    text: str
    since_ms: int


class Outlook(msgspec.Struct, frozen=True):
    """All of it. `reserved` are the devices of nodes that are free and promised to a job, as a set of bits; `cells`
    those that the cells of a virtual cluster are bound to, by its name and the node.
    """

    now_ms: int = 0
    loads: dict[str, Load] = {}
    reserved: dict[str, int] = {}
    levels: list[Level] = []
    attention: list[Item] = []
    cells: dict[str, dict[str, int]] = {}


_decoder = msgspec.msgpack.Decoder(Outlook)


def write_outlook(folder: Path, outlook: Outlook) -> None:
    """Writes it, whole or not at all. A disk that is full keeps the one before."""
    beside = folder / f"{FILE}.part"
    with suppress(OSError):
        beside.write_bytes(msgspec.msgpack.encode(outlook))
        beside.replace(folder / FILE)


class OutlookFile:
    """The file as a worker reads it: again only when it was written anew."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._stamp: tuple[int, int] = (0, 0)
        self._outlook = Outlook()

    def read(self) -> Outlook:
        """The newest that can be read."""
        with suppress(OSError, msgspec.DecodeError):
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                self._outlook = _decoder.decode(self._path.read_bytes())
                self._stamp = stamp
        return self._outlook
