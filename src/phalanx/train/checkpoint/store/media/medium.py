"""Where checkpoints lie: a directory, or anything that fsspec has a name for."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol, TypeAlias, TypeVar, runtime_checkable

from phalanx.train.checkpoint.store.errors import StoreError
from phalanx.train.checkpoint.store.media.retry import Retry

Produced = TypeVar("Produced")


@runtime_checkable
class Medium(Protocol):
    """A place for files, addressed by names relative to it. A medium can be sent to another process."""

    @property
    def url(self) -> str: ...

    def child(self, name: str) -> Medium:
        """The place `name` inside this one."""

    def write(self, name: str, produce: Callable[[BinaryIO], Produced]) -> Produced:
        """A whole new file: it appears under its name at once, with all its bytes, and stays after a power cut.

        `produce` writes it and may be called again from the start.
        """

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes | bytearray:
        """Bytes of a file; fewer than `length` where the file ends. FileNotFoundError where there is none."""

    def size(self, name: str) -> int | None:
        """Bytes of a file, None where there is none."""

    def names(self) -> list[str]:
        """What lies here, files and places, sorted; empty where there is nothing."""

    def remove(self, name: str) -> None:
        """Takes a file away; none there is no error."""

    def remove_all(self) -> None:
        """Takes this place away with all that is in it."""

    def sync(self) -> None:
        """Returns when the names in this place would survive a power cut."""


Root: TypeAlias = str | os.PathLike[str] | Medium


def open_medium(root: Root, retry: Retry | None = None, **options: Any) -> Medium:
    """The medium at a path or URL. `options` go to fsspec (credentials, endpoint), `retry` is for remote stores."""
    from phalanx.train.checkpoint.store.media.local import LocalMedium

    if isinstance(root, Medium):
        return root
    address = os.fspath(root)
    if not address:
        raise StoreError("the path of a checkpoint directory is empty")
    if address.startswith("file://"):
        address = address.removeprefix("file://")
    if not is_url(address):
        return LocalMedium(os.path.abspath(address))
    # A user that keeps checkpoints in a directory needs no fsspec.
    from phalanx.train.checkpoint.store.media.remote import RemoteMedium

    return RemoteMedium(address.rstrip("/"), retry or Retry(), tuple(sorted(options.items())))


def is_url(address: str) -> bool:
    """Whether an address is for fsspec to understand; any other is a path."""
    return "://" in address
