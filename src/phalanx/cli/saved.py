"""What was saved of a scheduler: a journal, a snapshot of its State, a debug bundle of a server, or a simulated run."""

from __future__ import annotations

import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

import click

from phalanx.cli.files import FileError, what_it_is
from phalanx.engine.fold import snapshot
from phalanx.engine.fold.apply import apply
from phalanx.engine.fold.snapshot import SnapshotError
from phalanx.engine.state.journal import Count, Record, decode
from phalanx.engine.state.state import State
from phalanx.engine.turn import record
from phalanx.policy.guarded import PolicyError
from phalanx.policy.registry import is_file, known, split
from phalanx.protocol.event import ClusterDefined, PolicyChanged, TimerDue

if TYPE_CHECKING:
    from phalanx.simulate.forecasts.experience import Experience
    from phalanx.simulate.simulation import Simulation

RUN_MAGIC, ZIP_MAGIC = b"phalanx simulation ", b"PK"
JOURNAL, SNAPSHOT, START, FORECASTS = "journal.jsonl", "snapshot.bin", "start.bin", "forecasts.json"
"""What of a bundle tells of the State: the journal, the State at its end, and of a long journal that at its begin; and
how far forecasts were off.
"""

LINE_BYTES_MAX = 64 << 20
"""How long a record may be: the longest that is written describes a cluster of 10,000 nodes in a few megabytes."""

MEMBER_BYTES_MAX = 2 << 30
"""How large a file of a bundle may be once it is unpacked. A server puts at most 200,000 records into one."""

JOURNAL_BYTES_MAX = 32 << 30
"""How large a journal may be, or a bundle: some 80 million records."""

TAIL_BYTES = 1 << 20

_UNLOADED = re.compile(r"policy '([^']+)': its file has not been loaded")

Read = TypeVar("Read")


class Kind(Enum):
    """What a file is."""

    JOURNAL = auto()
    SNAPSHOT = auto()
    BUNDLE = auto()
    RUN = auto()


NAMED = {Kind.JOURNAL: "a journal", Kind.SNAPSHOT: "a snapshot", Kind.BUNDLE: "a debug bundle", Kind.RUN: "a run"}


def kind_of(path: str) -> Kind:
    """What a file is by how it begins; what begins as nothing else is read as a journal."""
    with _opened(path) as file:
        beginning = file.read(32)
        size = os.fstat(file.fileno()).st_size
    magics = ((snapshot.MAGIC, Kind.SNAPSHOT), (ZIP_MAGIC, Kind.BUNDLE), (RUN_MAGIC, Kind.RUN))
    kind = next((kind for magic, kind in magics if beginning.startswith(magic)), Kind.JOURNAL)
    most = MEMBER_BYTES_MAX if kind in (Kind.SNAPSHOT, Kind.RUN) else JOURNAL_BYTES_MAX
    if size > most:
        raise FileError(f"{path}: expected {NAMED[kind]} of at most {most:,} bytes, it has {size:,}; take a part of it")
    return kind


def state_from(path: str) -> State:
    """The State that a file tells of: at the end of a journal or bundle, in a snapshot, at the moment of a run."""
    match kind_of(path):
        case Kind.RUN:
            return _reached(run_from(path))
        case Kind.SNAPSHOT:
            return snapshot_from(path)
        case Kind.BUNDLE:
            return _state_of_bundle(path)
        case Kind.JOURNAL:
            return _folded(State(), path)


def state_at(path: str, until_ms: int) -> State:
    """The State that a journal or bundle tells of at a moment, with no more of it in memory than that."""
    state = _folded(start_of(path), path, until_ms)
    if until_ms > state.now:
        record(state, Count(state.seq + 1), TimerDue(), until_ms)
    return state


def experience_from(path: str) -> Experience:
    """How forecasts came true that the server made of which a bundle is; of other files nothing is known."""
    from phalanx.simulate.forecasts.experience import Experience, decoded

    if kind_of(path) is not Kind.BUNDLE:
        return Experience()
    with _bundle(path) as bundle:
        return decoded(bundle.read(FORECASTS) if FORECASTS in bundle.namelist() else b"")


def _reached(simulation: Simulation) -> State:
    """The State of a run at the moment it was let go to: nothing may have happened since the last record."""
    state = simulation.run.state
    if state.seq >= 0 and simulation.now_ms > state.now:
        record(state, Count(state.seq + 1), TimerDue(), simulation.now_ms)
    return state


def start_of(path: str) -> State:
    """The State before the first record of a journal or bundle."""
    if kind_of(path) is Kind.BUNDLE:
        with _bundle(path) as bundle:
            if START in bundle.namelist():
                return _snapshot_of(bundle.read(START), f"{path}: {START}")
    return State()


def records_from(path: str) -> Iterator[tuple[Record, bytes]]:
    """The records of a journal or bundle one by one, from wherever it begins; a policy they name is at hand then."""
    if kind_of(path) is Kind.BUNDLE:
        with _bundle(path) as bundle, bundle.open(JOURNAL) as lines:
            yield from _records(lines, f"{path}: {JOURNAL}")
    else:
        with _opened(path) as file:
            yield from _records(file, path)


def last_line(path: str) -> bytes:
    """The last line of a journal or bundle that was written to its end; empty if there is none."""
    last = b""
    if kind_of(path) is Kind.BUNDLE:
        with _bundle(path) as bundle, bundle.open(JOURNAL) as file:
            for piece in iter(lambda: file.read(TAIL_BYTES), b""):
                last = (last + piece)[-2 * TAIL_BYTES :]
    else:
        with _opened(path) as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 2 * TAIL_BYTES, 0))
            last = file.read()
    whole = [line for line in last.split(b"\n")[:-1] if line.strip()]
    return whole[-1] if whole else b""


def snapshot_from(path: str) -> State:
    """The State of a snapshot."""
    with _opened(path) as file:
        return _snapshot_of(file.read(), path)


def run_from(path: str) -> Simulation:
    """A run that `phalanx simulate --save` wrote."""
    from phalanx.simulate.saved import load

    return _with_its_policy(lambda: load(path), path)


def _state_of_bundle(path: str) -> State:
    with _bundle(path) as bundle:
        content = bundle.read(SNAPSHOT)
    try:
        return _snapshot_of(content, f"{path}: {SNAPSHOT}")
    except FileError as error:
        click.echo(f"note: {error}; folding its journal instead", err=True)
    return _folded(start_of(path), path)


def _folded(state: State, path: str, until_ms: int | None = None) -> State:
    try:
        for each, line in records_from(path):
            if until_ms is not None and each.now > until_ms:
                break
            apply(state, each, line)
    except ValueError as error:
        raise FileError(f"{path}: {error}") from error
    except AssertionError as error:
        # The engine asserts what none of its own journals contradicts; one from elsewhere may.
        raise FileError(f"{path}: record {state.seq} contradicts those before it: {error}") from error
    return state


def _records(file: IO[bytes], source: str) -> Iterator[tuple[Record, bytes]]:
    is_empty = True
    for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX + 1), b""), start=1):
        if len(line) > LINE_BYTES_MAX:
            raise FileError(f"{source}: journal line {number}: expected at most {LINE_BYTES_MAX:,} bytes in a line")
        if line.strip():
            try:
                record = decode(line)
            except ValueError as error:
                if not (is_empty or line.endswith(b"\n")):
                    click.echo(f"note: {source}: its last line was not written to its end; it is left out", err=True)
                    return
                raise FileError(f"{source}: journal line {number}: {error}") from error
            is_empty = False
            if isinstance(record.body, ClusterDefined | PolicyChanged):
                _have_policy(record.body.policy, source)
            yield record, line.rstrip(b"\r\n")
    if is_empty:
        raise FileError(f"{source}: expected a journal, with a record in each line, found none")


def _snapshot_of(content: bytes, source: str) -> State:
    try:
        return _with_its_policy(lambda: snapshot.load(content), source)
    except SnapshotError as error:
        raise FileError(f"{source}: {error}") from error


def _with_its_policy(read: Callable[[], Read], source: str) -> Read:
    """What is read. A State names its policy: one in a file is loaded first."""
    try:
        return read()
    except ValueError as error:
        unloaded = _UNLOADED.search(str(error))
        if unloaded is None:
            raise
    _have_policy(unloaded[1], source)
    return read()


def _have_policy(spec: str, source: str) -> None:
    """Loads a policy from outside, as it was named when it decided: what it did is saved, what it is is not."""
    name, _ = split(spec)
    if name in known():
        return
    from phalanx.simulate.plugins import load_entry_point, load_policy_file

    if not is_file(spec):
        load_entry_point(name)
        return
    click.echo(f"note: {source} was decided by {name}, which is loaded for it", err=True)
    try:
        load_policy_file(spec)
    except PolicyError as error:
        raise FileError(
            f"{source} was decided by the policy {name}: {error}; put the file back, or go where it is"
        ) from error


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    try:
        # A FIFO would be waited for, and of a device there is no end.
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            raise FileError(f"{path}: expected a regular file, it is {what_it_is(mode)}; copy its content into a file")
        with Path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from error


@contextmanager
def _bundle(path: str) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as bundle:
            missing = [name for name in (JOURNAL, SNAPSHOT) if name not in bundle.namelist()]
            if missing:
                raise FileError(f"{path}: no debug bundle: there is no {missing[0]} in it")
            too_large = [each for each in bundle.infolist() if each.file_size > MEMBER_BYTES_MAX]
            if too_large:
                raise FileError(
                    f"{path}: no debug bundle: {too_large[0].filename} would be {too_large[0].file_size:,} bytes, "
                    f"of at most {MEMBER_BYTES_MAX:,}"
                )
            yield bundle
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise FileError(f"{path}: torn or no debug bundle: {error}; take it again") from error
