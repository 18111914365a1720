"""One value in a data file, as torch.save writes it and `torch.distributed.checkpoint` reads it."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

import torch

from phalanx.train.checkpoint.store.crc import without_crc
from phalanx.train.checkpoint.store.digest import Running, running

# torch.save writes headers, padding and directory in small calls, a large tensor in one: only small ones are kept.
SMALL_BYTES = 1 << 16
LOCAL_HEADER_BYTES = 30


@dataclass(slots=True)
class Tally(io.RawIOBase):
    """A file that is written from start to end, with its digest so far and the small writes of the present item."""

    file: BinaryIO
    position: int = 0
    digest: Running = field(default_factory=running)
    start: int = 0
    small: list[tuple[int, bytes]] = field(default_factory=list)
    failure: Exception | None = None

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        if len(view) <= SMALL_BYTES:
            self.small.append((self.position - self.start, bytes(view)))
        try:
            self.file.write(view)
        except Exception as error:
            # Drivers of remote stores raise other errors than OSError, too.
            self.failure = error
            raise
        self.digest.update(view)
        self.position += len(view)
        return len(view)

    def writable(self) -> bool:
        return True

    def begin_item(self) -> None:
        self.start = self.position
        self.small.clear()


@dataclass(frozen=True, slots=True)
class Item:
    """Where a value lies in its file; `data` is the place of a tensor's raw bytes."""

    start: int
    length: int
    data: int


def write_tensor(tally: Tally, tensor: torch.Tensor) -> Item:
    """Appends a host tensor. Only its own bytes are written, though it may be a view of a larger buffer."""
    raw = raw_bytes(tensor)
    alone = torch.frombuffer(raw, dtype=tensor.dtype).view(tensor.shape)
    tally.begin_item()
    try:
        with without_crc():
            torch.save(alone, cast(BinaryIO, tally))
    except RuntimeError as error:
        # torch.save complains of the archive that a failed write has left, and hides why the write failed.
        raise tally.failure or error from error
    length = tally.position - tally.start
    return Item(tally.start, length, tally.start + data_offset(tally.small, length, len(raw)))


def write_object(tally: Tally, value: Any) -> tuple[Item, bytes]:
    """Appends a small value; also gives its bytes."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    content = buffer.getvalue()
    tally.begin_item()
    tally.write(content)
    return Item(tally.start, len(content), tally.start), content


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """A host tensor's bytes in row order, without a copy where they lie so already."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return flat.numpy().data.cast("B")


def data_offset(small: list[tuple[int, bytes]], length: int, expected_bytes: int) -> int:
    """Where the raw bytes start in an item, by the archive's own directory."""
    view = Sparse(small, length)
    with zipfile.ZipFile(view) as archive:
        entry = next(each for each in archive.infolist() if each.filename.endswith("/data/0"))
    if entry.file_size != expected_bytes or entry.compress_type != zipfile.ZIP_STORED:
        raise RuntimeError(f"torch.save of {torch.__version__} wrote {entry!r}, expected {expected_bytes} plain bytes")
    view.seek(entry.header_offset)
    header = view.read(LOCAL_HEADER_BYTES)
    name_bytes, extra_bytes = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    return entry.header_offset + LOCAL_HEADER_BYTES + name_bytes + extra_bytes


class Sparse(io.RawIOBase):
    """A file of which only some stretches are known; the rest reads as zeros."""

    def __init__(self, stretches: list[tuple[int, bytes]], length: int) -> None:
        self.stretches = stretches
        self.length = length
        self.position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.length}[whence]
        self.position = max(0, base + offset)
        return self.position

    def tell(self) -> int:
        return self.position

    def readinto(self, buffer: Any, /) -> int:
        wanted = memoryview(buffer).cast("B")
        count = max(0, min(len(wanted), self.length - self.position))
        wanted[:count] = bytes(count)
        for start, content in self.stretches:
            low, high = max(start, self.position), min(start + len(content), self.position + count)
            if low < high:
                wanted[low - self.position : high - self.position] = content[low - start : high - start]
        self.position += count
        return count
