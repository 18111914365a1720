"""The recording: what an API server told, line by line, as it came. Everything else is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from phalanx.errors import PhalanxError

FILE = "recording.jsonl"

BEGIN, READY, THERE, GONE, ALIVE, MISSING = "begin", "ready", "there", "gone", "alive", "missing"


class RecordingError(PhalanxError):
    """A file that is no recording."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. A section begins with `begin` and all that is `there`, closed by `ready`, which names the kinds that
    were read; from then on objects are `there` anew as they change, or `gone`. `alive` says that nothing was missed
    until then. What may not be read is `missing`. `at_ms` is by the clock of the recorder, and the times in objects by
    that of the API server, which `begin` says is `ahead_ms` of it.
    """

    at_ms: int
    what: str
    kind: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
    kinds: tuple[str, ...] = ()
    why: str = ""
    ahead_ms: int = 0


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Entry)


def write(file: BinaryIO, entry: Entry) -> None:
    """Writes one line."""
    file.write(_encoder.encode(entry) + b"\n")


def entries_of(recorded: bytes) -> Iterator[Entry]:
    """The lines of a recording that was not written to a file."""
    return (_decoder.decode(line) for line in recorded.splitlines())


def entries_in(folder: Path) -> Iterator[Entry]:
    """All lines so far. A last line that is not whole is left out."""
    path = folder / FILE
    try:
        lines = path.open("rb")
    except FileNotFoundError:
        raise RecordingError(f"{path} is not there: record with `phalanx kube shadow {folder}`") from None
    with lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield _decoder.decode(line)
            except msgspec.MsgspecError as error:
                if not line.endswith(b"\n"):
                    return
                raise RecordingError(f"{path}:{number}: no line of a recording: {error}") from error


def mend(path: Path) -> None:
    """Cuts off a last line that was not written whole, so that others can follow."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        file.seek(0, 2)
        end = file.tell()
        while end:
            start = max(end - 65_536, 0)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                file.truncate(start + found + 1)
                return
            end = start
        file.truncate(0)
