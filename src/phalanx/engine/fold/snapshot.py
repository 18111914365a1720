"""Snapshots: the State at a record, as bytes, so that a restart need not fold the whole journal again.

A State is written as it is in memory. Only classes of phalanx and plain data are read back: bytes that ask for anything
else, which could be made to run code, are refused. The header tells the form of the classes inside: a release whose
classes have other fields refuses the snapshot, and the journal is folded instead.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from functools import partial
from hashlib import blake2b
from io import BytesIO  # noqa: TID251 (bytes in memory, no file)
from operator import attrgetter
from typing import Any, TypeVar

from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.state.journal import Digest
from phalanx.engine.state.records import AttemptRecord, EquivalenceClass, JobRecord
from phalanx.engine.state.state import State
from phalanx.placement.placement import Placement, Slot
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import HIDDEN, Execution, Job

MAGIC = b"phalanx snapshot "
VERSION = 4
"""The form of the header and of what follows it."""

HEADER_BYTES_MAX = 128

PLAIN = {
    "builtins": ("set", "frozenset", "bytearray", "complex", "range", "slice", "object"),
    "collections": ("deque", "OrderedDict"),
}
"""What may be read back beside classes of phalanx and what pickle has signs of its own for."""

MOVED = {
    "phalanx.engine.action": "phalanx.protocol.action",
    "phalanx.engine.cells": "phalanx.engine.state.cells",
    "phalanx.engine.cells_steps": "phalanx.protocol.cells_steps",
    "phalanx.engine.ends": "phalanx.engine.state.ends",
    "phalanx.engine.event": "phalanx.protocol.event",
    "phalanx.engine.gangs": "phalanx.engine.state.gangs",
    "phalanx.engine.history": "phalanx.engine.state.history",
    "phalanx.engine.journal": "phalanx.engine.state.journal",
    "phalanx.engine.pending.classes": "phalanx.engine.state.classes",
    "phalanx.engine.pending.requests": "phalanx.engine.state.requests",
    "phalanx.engine.plan": "phalanx.protocol.plan",
    "phalanx.engine.quotas": "phalanx.engine.quota.quotas",
    "phalanx.engine.records": "phalanx.engine.state.records",
    "phalanx.engine.spending": "phalanx.engine.quota.spending",
    "phalanx.engine.standing": "phalanx.engine.state.running_order",
    "phalanx.engine.state": "phalanx.engine.state.state",
    "phalanx.engine.stoppable": "phalanx.engine.state.preemptible",
}
"""Modules that older releases named in snapshots, and where their classes are now."""

UNREADABLE = (
    pickle.UnpicklingError,
    zlib.error,
    EOFError,
    AttributeError,
    ImportError,
    IndexError,
    KeyError,
    TypeError,
    ValueError,
)
"""What reading torn or foreign bytes may raise."""

Thing = TypeVar("Thing")
Values = Callable[[Any], tuple[Any, ...]]


class SnapshotError(ValueError):
    """Bytes that are no snapshot, or not one that this release can read."""


def dump(state: State) -> bytes:
    """A State as bytes."""
    return _dumped(state, written(state))


def dump_hidden(state: State, link: bytes | None = None) -> bytes:
    """A State as bytes without the values of jobs' variables, for readers that may not know them.

    The digest of a State is over records with these values, which could be guessed by it. Another takes its place: the
    last link of the chain over those records that go with the State, or one that begins here.
    """
    content = BytesIO()
    _HidingWriter(content, Digest(link) if link is not None else Digest()).dump(state)
    return _dumped(state, content.getvalue())


def seq_of(content: bytes) -> int:
    """The record at which a snapshot was taken."""
    return int(_header(content)[2])


def _dumped(state: State, body: bytes) -> bytes:
    return MAGIC + f"{VERSION} {form()} {state.seq}\n".encode() + zlib.compress(body, level=1)


def is_of_this_release(beginning: bytes) -> bool:
    """Whether this release can read a snapshot that begins so: its first `HEADER_BYTES_MAX` will do."""
    try:
        return _header(beginning)[:2] == [str(VERSION), form()]
    except SnapshotError:
        return False


def load(content: bytes) -> State:
    """A State from its bytes."""
    if _header(content)[:2] != [str(VERSION), form()]:
        raise SnapshotError("a snapshot of another release of phalanx; fold the journal instead")
    try:
        return read(zlib.decompress(content.partition(b"\n")[2]), State)
    except UNREADABLE as error:
        raise SnapshotError(f"a torn or foreign snapshot: {error}") from error


def _header(content: bytes) -> list[str]:
    """What a snapshot says first: the form of it, that of its classes, and its record."""
    header = content.partition(b"\n")[0]
    parts = header.removeprefix(MAGIC).decode("ascii", "replace").split(" ")
    if not header.startswith(MAGIC) or len(parts) != 3:
        raise SnapshotError("not a snapshot; expected one that phalanx wrote")
    return parts


def form() -> str:
    """A short name for what the classes inside a snapshot look like: other fields give another name."""
    records = (JobRecord, AttemptRecord, Job, Gang, Role, Task, Execution, Cluster, Node)
    names = [(type_.__name__, [each.name for each in fields(type_)]) for type_ in records]
    structs = [(type_.__name__, list(type_.__annotations__)) for type_ in (Placement, Slot)]
    shape = [*names, *structs, list(EquivalenceClass.__slots__), sorted(vars(State()))]
    return blake2b(repr(shape).encode(), digest_size=6).hexdigest()


def written(thing: object) -> bytes:
    """Anything made of classes of phalanx and plain data, as bytes."""
    content = BytesIO()
    _Writer(content).dump(thing)
    return content.getvalue()


def read(content: bytes, expected: type[Thing]) -> Thing:
    """What was written. Bytes that hold something else raise one of `UNREADABLE`."""
    thing = _Reader(BytesIO(content)).load()
    if not isinstance(thing, expected):
        raise TypeError(f"it holds a {type(thing).__name__}, expected a {expected.__name__}")
    return thing


COMMON = {Job: ("gang", "checkpoint", "execution"), JobRecord: ("shape", "tasks", "need"), Role: ("task", "topology")}
"""What many jobs have alike: each such value is written once, and is one object when it is read back."""


class _Writer(pickle.Pickler):
    """Writes records and what never changes as calls of their classes, which are read back three times as fast as
    fields one by one. The members of enums are written by their values, which some releases of Python would look up
    otherwise.
    """

    def __init__(self, content: BytesIO) -> None:
        super().__init__(content, protocol=5)
        self._values: dict[type, Values | None] = {}

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        try:
            values = self._values[kind]
        except KeyError:
            values = self._values[kind] = self._values_of(kind)
        return NotImplemented if values is None else (kind, values(obj))

    def _values_of(self, kind: Any) -> Values | None:
        """How to get what a class is called with; None where it is to be written field by field."""
        if issubclass(kind, Enum):
            return lambda member: (member.value,)
        if kind is not JobRecord and not _is_fixed(kind):
            return None
        names = [each.name for each in fields(kind)]
        getter: Values = (
            attrgetter(*names) if len(names) > 1 else lambda obj: tuple(getattr(obj, name) for name in names)
        )
        known: dict[int, dict[Any, Any]] = {names.index(name): {} for name in COMMON.get(kind, ())}
        return partial(_with_common, getter, known) if known else getter


class _HidingWriter(_Writer):
    """Writes a State with another digest, and every execution in it without the values of its variables."""

    def __init__(self, content: BytesIO, digest: Digest) -> None:
        super().__init__(content)
        self._digest = digest

    def _values_of(self, kind: Any) -> Values | None:
        if kind is Digest:
            return lambda _: (self._digest.link,)
        values = super()._values_of(kind)
        if kind is not Execution or values is None:
            return values
        place = [each.name for each in fields(Execution)].index("env")
        return partial(_without_variables, values, place)


def _without_variables(getter: Values, place: int, obj: Any) -> tuple[Any, ...]:
    values = list(getter(obj))
    values[place] = tuple((name, HIDDEN) for name, _ in values[place])
    return tuple(values)


def _with_common(getter: Values, known: dict[int, dict[Any, Any]], obj: Any) -> tuple[Any, ...]:
    """The values of an object, with those that equal an earlier object's replaced by that object's."""
    values = list(getter(obj))
    for place, alike in known.items():
        value = values[place]
        values[place] = alike.setdefault(tuple(value.items()) if isinstance(value, dict) else value, value)
    return tuple(values)


def _is_fixed(kind: Any) -> bool:
    """Whether objects of a class are what they were made with, and nothing else."""
    parameters = getattr(kind, "__dataclass_params__", None)
    return (
        parameters is not None
        and parameters.frozen
        and not hasattr(kind, "__post_init__")
        and all(each.init and not each.kw_only for each in fields(kind))
    )


class _Reader(pickle.Unpickler):
    """Builds nothing but classes of phalanx and plain data."""

    def find_class(self, module: str, name: str) -> type:
        module = MOVED.get(module, module)
        if module.startswith("phalanx."):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__.startswith("phalanx."):
                return found
        elif name in PLAIN.get(module, ()):
            found = super().find_class(module, name)
            if isinstance(found, type):
                return found
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which nothing that phalanx writes holds")
