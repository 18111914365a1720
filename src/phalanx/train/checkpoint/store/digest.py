"""The fingerprint of bytes: XXH3, because it keeps up with memory. It guards against accidents, not against forgery."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import xxhash

Bytes: TypeAlias = bytes | bytearray | memoryview


class Running(Protocol):
    """A digest that is fed as bytes go by."""

    def update(self, data: Bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


def digest(data: Bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


def running() -> Running:
    return xxhash.xxh3_128()
