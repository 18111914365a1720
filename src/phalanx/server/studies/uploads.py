"""Uploads: traces that users send for studies. Bytes are checked as they come and go to the disk, never to memory.

Nothing packed is taken, so nothing is ever unpacked. What the file is called is only shown: no path is made of it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType

import msgspec

from phalanx.server.refusal import Refusal
from phalanx.server.studies.limits import (
    LINE_BYTES_MAX,
    LINES_MAX,
    UPLOAD_BYTES_MAX,
    UPLOAD_KEPT_MS,
    UPLOADS_BYTES_MAX,
    UPLOADS_OF_ONE,
)
from phalanx.server.studies.shelf import ID, read, remove_at_once

ABOUT, CONTENT = "about.json", "content"
NAME_LENGTH_MAX = 100
HEAD_BYTES = 4_096
UNLIKE_A_NAME = re.compile(r"[^\w .,()+=@-]")
DRAFT_MS = 3_600_000
"""After so long without its end an upload has none."""

PACKED = {
    b"\x1f\x8b": "gzip",
    b"PK": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf": "7-Zip",
    b"PAR1": "Parquet",
}
MEDIA = (
    "",
    "application/octet-stream",
    "text/csv",
    "text/plain",
    "text/tab-separated-values",
    "application/csv",
    "application/json",
    "application/x-ndjson",
    "application/jsonl",
    "application/vnd.ms-excel",
)
"""What a trace may be said to be. What it is shows in what is in it."""


class Upload(msgspec.Struct, frozen=True):
    """A trace that a user has uploaded."""

    id: str
    user: str
    name: str
    bytes: int
    lines: int
    created_ms: int


def shown_name(name: str) -> str:
    """A name of a file as it is shown: without folders, and without what could be taken for something else."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return UNLIKE_A_NAME.sub("_", last)[:NAME_LENGTH_MAX].strip(" .") or "trace"


def need_plain(media: str, encoding: str) -> None:
    """Refuses a body that is not the trace itself."""
    if encoding.strip().lower() not in ("", "identity"):
        raise Refusal("unsupported_media", f"the body is packed ({encoding[:40]}): send the trace as it is")
    if media.partition(";")[0].strip().lower() not in MEDIA:
        raise Refusal(
            "unsupported_media",
            f"the body is said to be {media[:80]}: send the file itself, as application/octet-stream",
        )


class Uploads:
    """The uploads of a server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "uploads"

    def all(self) -> list[Upload]:
        """All uploads, the oldest first."""
        found = (read(self._folder / name / ABOUT, Upload) for name in self._names())
        return sorted((each for each in found if each is not None), key=lambda each: (each.created_ms, each.id))

    def one(self, name: str) -> Upload | None:
        """An upload; None if there is none of this name."""
        return read(self._folder / name / ABOUT, Upload) if ID.fullmatch(name) else None

    def content(self, upload: Upload) -> Path:
        """The file of an upload."""
        return self._folder / upload.id / CONTENT

    def begin(self, user: str, name: str, now_ms: int) -> Arriving:
        """Takes an upload, unless the user, or all users together, have too many."""
        self.remove_old(now_ms)
        there = self.all()
        if sum(each.user == user for each in there) >= UPLOADS_OF_ONE:
            raise Refusal("conflict", f"you have {UPLOADS_OF_ONE} uploads: remove one that you need no more")
        if sum(each.bytes for each in there) + UPLOAD_BYTES_MAX > UPLOADS_BYTES_MAX:
            raise Refusal("storage_full", "uploads of all users take all their space: wait until some are removed")
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        draft = self._folder / f"{token_hex(8)}.draft"
        draft.mkdir(0o700)
        return Arriving(draft, user, shown_name(name), now_ms)

    def remove(self, name: str) -> None:
        """Removes an upload. Studies of it keep what they have."""
        remove_at_once(self._folder / name)

    def remove_old(self, now_ms: int) -> None:
        """Removes uploads whose time is over, and what never came to its end."""
        for upload in self.all():
            if upload.created_ms < now_ms - UPLOAD_KEPT_MS:
                self.remove(upload.id)
        for draft in self._folder.glob("*.draft"):
            with suppress(OSError):
                if draft.stat().st_mtime * 1000 < now_ms - DRAFT_MS:
                    shutil.rmtree(draft, ignore_errors=True)

    def _names(self) -> Iterator[str]:
        with suppress(FileNotFoundError):
            yield from (entry.name for entry in os.scandir(self._folder) if ID.fullmatch(entry.name))


class Arriving:
    """An upload that arrives. Unless it is kept at the end, nothing is left of it."""

    def __init__(self, draft: Path, user: str, name: str, now_ms: int) -> None:
        self._draft = draft
        self._user, self._name, self._now_ms = user, name, now_ms
        self._file = (draft / CONTENT).open("xb", buffering=0)
        self._bytes = self._lines = self._line_bytes = 0
        self._is_list = False

    def __enter__(self) -> Arriving:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        shutil.rmtree(self._draft, ignore_errors=True)

    def take(self, content: bytes) -> None:
        """Takes the next bytes. The first are to be enough to tell what the file is."""
        if not self._bytes:
            self._check_head(content[:HEAD_BYTES])
        self._bytes += len(content)
        if self._bytes > UPLOAD_BYTES_MAX:
            raise Refusal("too_large", f"expected a trace of at most {UPLOAD_BYTES_MAX >> 20} MiB: take a part of it")
        self._check_lines(content)
        view = memoryview(content)
        while view:
            view = view[self._file.write(view) :]

    def keep(self) -> Upload:
        """Keeps what has arrived."""
        if not self._bytes:
            raise Refusal("invalid", "the file is empty")
        name = self._draft.name.removesuffix(".draft")
        upload = Upload(name, self._user, self._name, self._bytes, self._lines, self._now_ms)
        (self._draft / ABOUT).write_bytes(msgspec.json.encode(upload))
        self._draft.rename(self._draft.with_name(name))
        return upload

    def _check_head(self, head: bytes) -> None:
        for magic, kind in PACKED.items():
            if head.startswith(magic):
                raise Refusal("unsupported_media", f"the file is packed ({kind}): unpack it first, and send it as text")
        if b"\0" in head:
            raise Refusal("unsupported_media", "expected a trace as text, such as CSV; the file has zero bytes")
        self._is_list = head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")

    def _check_lines(self, content: bytes) -> None:
        """Of a list in JSON neither the lines nor their length say how many jobs there are."""
        if self._is_list:
            return
        ends = content.count(b"\n")
        self._lines += ends
        if self._lines > LINES_MAX:
            raise Refusal(
                "too_large", f"expected at most {LINES_MAX:,} lines: take a part of the trace, such as a month"
            )
        before = self._line_bytes
        self._line_bytes = len(content) - content.rfind(b"\n") - 1 if ends else before + len(content)
        if max(self._line_bytes, before + (content.find(b"\n") if ends else 0)) > LINE_BYTES_MAX:
            raise Refusal(
                "invalid", f"line {self._lines + 1:,} has more than {LINE_BYTES_MAX >> 20} MiB: this is no trace"
            )
