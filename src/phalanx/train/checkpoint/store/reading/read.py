"""Bytes from the store, checked before they are used."""

from __future__ import annotations

import io
import pickle
import zipfile
from typing import Any

import torch

from phalanx.train.checkpoint.store.digest import digest
from phalanx.train.checkpoint.store.errors import Corrupt, StoreError
from phalanx.train.checkpoint.store.manifest import StoredObject, dtype_named
from phalanx.train.checkpoint.store.reading.plan import Reading
from phalanx.train.checkpoint.store.reading.source import Source


def read_slab(source: Source, reading: Reading) -> torch.Tensor:
    """A slab in host memory."""
    sizes = [high - low for low, high in zip(reading.low, reading.high, strict=True)]
    if not source.is_checked:
        return read_foreign_box(source, reading).reshape(sizes)
    chunk = reading.chunk
    content = read_exactly(source, chunk.file, chunk.data + reading.start, reading.bytes)
    if reading.slab >= len(chunk.digests) or digest(content) != chunk.digests[reading.slab]:
        raise damaged(source, chunk.file, f"{reading.fqn}, bytes {chunk.data + reading.start} to +{reading.bytes}")
    dtype = dtype_named(source.manifest.tensors[reading.fqn].dtype)
    return torch.frombuffer(content, dtype=dtype).reshape(sizes)


def read_object(source: Source, key: str, stored: StoredObject) -> bytearray:
    """An object's bytes, as torch.save wrote them."""
    content = read_exactly(source, stored.file, stored.item, stored.item_bytes)
    if source.is_checked:
        if digest(content) != stored.digest:
            raise damaged(source, stored.file, f"object {key}")
    else:
        check_archive(source, stored.file, key, content)
    return content


def unpack_object(key: str, content: bytes | bytearray, trusted: bool) -> Any:
    """An object's value. Only plain values are built from a file that is not `trusted`: no code of its runs."""
    try:
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=not trusted)
    except pickle.UnpicklingError as error:
        raise StoreError(
            f"object {key!r} is more than plain values and tensors, and building it would run code from the file; "
            f"load with trusted=True if you trust its origin ({str(error).splitlines()[0]})"
        ) from error


def read_foreign_box(source: Source, reading: Reading) -> torch.Tensor:
    chunk = reading.chunk
    content = read_exactly(source, chunk.file, chunk.item, chunk.item_bytes)
    check_archive(source, chunk.file, reading.fqn, content)
    try:
        tensor = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise damaged(source, chunk.file, f"{reading.fqn}: {str(error).splitlines()[0]}") from error
    if not isinstance(tensor, torch.Tensor) or tuple(tensor.shape) != chunk.sizes:
        raise damaged(source, chunk.file, f"{reading.fqn}: expected a tensor of {list(chunk.sizes)}")
    return tensor.contiguous()


def check_archive(source: Source, name: str, key: str, content: bytearray) -> None:
    """DCP keeps no digests, but torch.save's archives have sums of their own, unless they were switched off (zeros)."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for entry in archive.infolist():
                if entry.CRC:
                    archive.read(entry)
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise damaged(source, name, f"{key}: {error}") from error


def read_exactly(source: Source, name: str, offset: int, length: int) -> bytearray:
    try:
        content = source.directory.read(name, offset, length)
    except (FileNotFoundError, NotADirectoryError):
        raise Corrupt(source.directory.url, [f"{name} is missing"]) from None
    if len(content) != length:
        raise Corrupt(source.directory.url, [f"{name} ends {length - len(content)} bytes early"])
    return content if isinstance(content, bytearray) else bytearray(content)


def damaged(source: Source, name: str, what: str) -> Corrupt:
    return Corrupt(source.directory.url, [f"{name} is damaged: {what}"])
