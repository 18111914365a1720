"""The shelf: the folder of every study, which says all there is to say of it.

A worker of the API puts a study there as a whole, the process of studies runs it, and any worker reads how far it is.
Nothing of it is in memory alone, so that neither has to ask the other.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import msgspec

from phalanx.server.studies.asked import Asked

ID = re.compile(r"[0-9a-f]{16}")

ASKED, TRACE, COURSE, PROGRESS = "asked.json", "trace", "course.json", "progress.json"
ANSWER, REPORT, ERROR, CANCEL, REMOVED = "answer.json", "report.html", "error", "cancel", "removed"

T = TypeVar("T")


class StudyState(StrEnum):
    """How far a study is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Course(msgspec.Struct, frozen=True):
    """When a study began and ended, and what it failed of."""

    state: StudyState = StudyState.QUEUED
    began_ms: int | None = None
    ended_ms: int | None = None
    error: str = ""


class Progress(msgspec.Struct, frozen=True):
    """How much of a study is done; `total` is 0 where that is not known beforehand."""

    done: int = 0
    total: int = 0
    text: str = ""


class Study(msgspec.Struct, frozen=True):
    """A study on the shelf."""

    id: str
    asked: Asked
    course: Course
    progress: Progress
    has_report: bool
    is_to_end: bool
    """Whether its user has cancelled it."""

    @property
    def is_under_way(self) -> bool:
        """Whether it waits for a process, or has one."""
        return self.course.state in (StudyState.QUEUED, StudyState.RUNNING)


class Shelf:
    """The studies of a server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "kept"

    def put(self, asked: Asked, upload: Path | None) -> str:
        """Puts a study there. What was uploaded stays with it, also if the upload is removed meanwhile."""
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        name = token_hex(8)
        draft = self._folder / f"{name}.draft"
        draft.mkdir(0o700)
        try:
            if upload is not None:
                os.link(upload, draft / TRACE)
            (draft / ASKED).write_bytes(msgspec.json.encode(asked))
            draft.rename(self.folder(name))
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return name

    def folder(self, name: str) -> Path:
        """Where a study is."""
        return self._folder / name

    def study(self, name: str) -> Study | None:
        """A study; None if there is none of this name, or it is being removed."""
        folder = self.folder(name)
        if ID.fullmatch(name) is None or (folder / REMOVED).exists():
            return None
        asked = read(folder / ASKED, Asked)
        if asked is None:
            return None
        return Study(
            name,
            asked,
            read(folder / COURSE, Course) or Course(),
            read(folder / PROGRESS, Progress) or Progress(),
            (folder / REPORT).exists(),
            (folder / CANCEL).exists(),
        )

    def studies(self) -> list[Study]:
        """All studies, the oldest first."""
        found = [study for name in self.names() if (study := self.study(name)) is not None]
        return sorted(found, key=lambda each: (each.asked.created_ms, each.id))

    def names(self) -> Iterator[str]:
        """The names of all that is there, also of what is being removed."""
        with suppress(FileNotFoundError):
            yield from (entry.name for entry in os.scandir(self._folder) if ID.fullmatch(entry.name))

    def drafts(self) -> Iterator[Path]:
        """What was never put there as a whole."""
        yield from self._folder.glob("*.draft")

    def mark(self, name: str, mark: str) -> None:
        """Says that a study is to be ended, or removed. One that has gone meanwhile is neither."""
        with suppress(FileNotFoundError):
            (self.folder(name) / mark).touch(0o600)

    def is_removed(self, name: str) -> bool:
        """Whether a study is to be removed."""
        return (self.folder(name) / REMOVED).exists()

    def remove(self, name: str) -> None:
        """Removes the folder of a study that nothing works on."""
        remove_at_once(self.folder(name))


def read(path: Path, kind: type[T]) -> T | None:
    """What a file says; None if it is not there, or half removed."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def remove_at_once(folder: Path) -> None:
    """Removes a folder so that it is never seen with some of its files only."""
    draft = folder.with_name(f"{folder.name}.draft")
    with suppress(FileNotFoundError):
        folder.rename(draft)
    shutil.rmtree(draft, ignore_errors=True)


def write(path: Path, content: bytes) -> None:
    """Writes a file that others read meanwhile: they see it as it was, or as it is now."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_bytes(content)
    beside.replace(path)
