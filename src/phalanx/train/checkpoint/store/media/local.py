"""A directory of a mounted file system: local NVMe, NFS, Lustre, GPFS."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from phalanx.train.checkpoint.store.errors import StoreError

Produced = TypeVar("Produced")

BUFFER_BYTES = 1 << 20
MISSING = (FileNotFoundError, NotADirectoryError)
ADVICE = {
    errno.ENOSPC: "free space there, or keep fewer steps",
    errno.EDQUOT: "free space there, or keep fewer steps",
    errno.EACCES: "let this user write there, or choose another directory",
    errno.EPERM: "let this user write there, or choose another directory",
    errno.ENOTDIR: "choose a path that leads through directories only",
    errno.EROFS: "mount it writable, or choose another directory",
}


@dataclass(frozen=True, slots=True)
class LocalMedium:
    """A directory. Files appear by renaming, after their bytes are on the disk."""

    directory: str

    @property
    def url(self) -> str:
        return self.directory

    def child(self, name: str) -> LocalMedium:
        return LocalMedium(os.path.join(self.directory, name))

    def write(self, name: str, produce: Callable[[BinaryIO], Produced]) -> Produced:
        path = self._path(name)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with in_words(f"cannot write {path}"):
            make_directory(path.parent)
            try:
                with temporary.open("wb", buffering=BUFFER_BYTES) as file:
                    produced = produce(file)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            sync_directory(path.parent)
        return produced

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytearray:
        path = self._path(name)
        with in_words(f"cannot read {path}", MISSING), path.open("rb", buffering=0) as file:
            rest = max(0, os.fstat(file.fileno()).st_size - offset)
            wanted = rest if length is None else min(length, rest)
            buffer = bytearray(wanted)
            view = memoryview(buffer)
            done = 0
            while done < wanted:
                got = os.preadv(file.fileno(), [view[done:]], offset + done)
                if got == 0:
                    return buffer[:done]
                done += got
            return buffer

    def size(self, name: str) -> int | None:
        try:
            with in_words(f"cannot look at {self._path(name)}", MISSING):
                return self._path(name).stat().st_size
        except MISSING:
            return None

    def names(self) -> list[str]:
        try:
            with in_words(f"cannot list {self.directory}", MISSING):
                return sorted(os.listdir(self.directory))
        except MISSING:
            return []

    def remove(self, name: str) -> None:
        with in_words(f"cannot remove {self._path(name)}"):
            self._path(name).unlink(missing_ok=True)

    def remove_all(self) -> None:
        with in_words(f"cannot remove {self.directory}"), contextlib.suppress(*MISSING):
            shutil.rmtree(self.directory)

    def sync(self) -> None:
        with in_words(f"cannot sync {self.directory}"):
            sync_directory(Path(self.directory))

    def _path(self, name: str) -> Path:
        return Path(self.directory, name)


@contextlib.contextmanager
def in_words(what: str, passed_on: tuple[type[OSError], ...] = ()) -> Iterator[None]:
    """An operating system's refusal as one line that says what to do, but for what is `passed_on` as it is."""
    try:
        yield
    except passed_on:
        raise
    except OSError as error:
        advice = ADVICE.get(error.errno or 0)
        raise StoreError(f"{what}: {error.strerror or error}{f'; {advice}' if advice else ''}") from error


def make_directory(path: Path) -> None:
    """The directory and those above it, each entered in its parent for good."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in reversed(missing):
        sync_directory(each.parent)


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
