"""A store that fsspec reaches: S3, GCS, Azure, HDFS, memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, TypeVar, cast

import fsspec  # type: ignore[import-untyped]

from phalanx.train.checkpoint.store.errors import StoreError
from phalanx.train.checkpoint.store.media.drivers import lacks_bucket
from phalanx.train.checkpoint.store.media.retry import Retry

Produced = TypeVar("Produced")

BUCKET_STORES = ("abfs", "abfss", "adl", "az", "gcs", "gs", "s3", "s3a")
"""Protocols of stores whose directories are no more than names. Asked to make one, s3fs makes a missing bucket."""


@dataclass(frozen=True, slots=True)
class RemoteMedium:
    """An fsspec URL. An object store shows an object when it is whole, so writing needs no renaming."""

    address: str
    retry: Retry
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def url(self) -> str:
        return self.address

    def child(self, name: str) -> RemoteMedium:
        return replace(self, address=f"{self.address}/{name}")

    def write(self, name: str, produce: Callable[[BinaryIO], Produced]) -> Produced:
        what = f"writing {self.address}/{name}"

        def put() -> Produced:
            system, path = self._at(name)
            if not is_bucket_store(self.address):
                system.makedirs(system._parent(path), exist_ok=True)
            try:
                return put_whole(system, path, produce)
            except FileNotFoundError as error:
                if lacks_bucket(error):
                    raise StoreError(f"{what}: {error}; create the bucket, or correct the URL") from error
                # An upload in parts of which the store knows nothing any more is begun anew.
                raise OSError(str(error)) from error

        return self.retry.run(what, put)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        def get() -> bytes:
            system, path = self._at(name)
            if length == 0:
                return b""
            end = None if length is None else offset + length
            return cast(bytes, system.cat_file(path, start=offset, end=end))

        return self.retry.run(f"reading {self.address}/{name}", get)

    def size(self, name: str) -> int | None:
        def look() -> int:
            system, path = self._at(name)
            system.invalidate_cache(path)
            return int(system.size(path))

        try:
            return self.retry.run(f"looking at {self.address}/{name}", look)
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        def look() -> list[str]:
            system, path = self._at("")
            system.invalidate_cache(path)
            return sorted({str(each).rstrip("/").rsplit("/", 1)[-1] for each in system.ls(path, detail=False)})

        try:
            return self.retry.run(f"listing {self.address}", look)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove(self, name: str) -> None:
        self._remove(name, recursive=False)

    def remove_all(self) -> None:
        self._remove("", recursive=True)

    def sync(self) -> None:
        """A store's answer to a write is its promise; there is no more to ask for."""

    def _remove(self, name: str, recursive: bool) -> None:
        def take_away() -> None:
            system, path = self._at(name)
            system.rm(path, recursive=recursive)

        try:
            self.retry.run(f"removing {self.address}/{name}", take_away)
        except FileNotFoundError:
            return

    def _at(self, name: str) -> tuple[Any, str]:
        try:
            system, path = fsspec.core.url_to_fs(self.address, **dict(self.options))
        except ImportError as error:
            extra = "; pip install '.[s3]' in a clone of phalanx" if self.address.startswith("s3") else ""
            raise StoreError(f"{self.address}: {error}{extra}") from error
        except ValueError as error:
            raise StoreError(f"{self.address}: {error}") from error
        return system, f"{path.rstrip('/')}/{name}" if name else path


def is_bucket_store(address: str) -> bool:
    """Whether an address names a bucket and names of objects in it."""
    return address.partition("://")[0] in BUCKET_STORES


def put_whole(system: Any, path: str, produce: Callable[[BinaryIO], Produced]) -> Produced:
    """Writes an object. One that could not be produced to its end is given up: closing it would store what there is."""
    file = system.open(path, "wb")
    try:
        produced = produce(cast(BinaryIO, file))
        file.close()
    except BaseException:
        give_up(file)
        raise
    return produced


def give_up(file: Any) -> None:
    """Has a store forget what was sent of an object. Where it is away, its own rules tidy up unfinished uploads."""
    # A file that is collected before it counts as closed would be closed, and stored, then. What is kept in memory
    # alone cannot be told so.
    with suppress(AttributeError):
        file.closed = True
    # The error that made it be given up says more than one of giving up.
    with suppress(Exception):
        file.discard()
