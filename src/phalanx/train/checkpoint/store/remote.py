"""A store that fsspec reaches: S3, GCS, Azure, HDFS, memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, TypeVar, cast

import fsspec  # type: ignore[import-untyped]

from phalanx.train.checkpoint.store.errors import StoreError
from phalanx.train.checkpoint.store.retry import Retry

Produced = TypeVar("Produced")


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
        def put() -> Produced:
            system, path = self._at(name)
            system.makedirs(system._parent(path), exist_ok=True)
            with system.open(path, "wb") as file:
                return produce(cast(BinaryIO, file))

        return self.retry.run(f"writing {self.address}/{name}", put)

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
        except (ValueError, ImportError) as error:
            raise StoreError(f"{self.address}: {error}") from error
        return system, f"{path.rstrip('/')}/{name}" if name else path
