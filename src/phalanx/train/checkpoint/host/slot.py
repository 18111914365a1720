"""One snapshot of one rank in shared memory: a header, the bytes of the pieces, and a record of what they are.

The header is marked `WRITING` before the first byte changes and `COMPLETE` after the last one has. A reader of a
snapshot that is half written, because its writer was killed, sees that it is.
"""

from __future__ import annotations

import pickle
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phalanx.train.checkpoint.host.segment import Segment
from phalanx.train.checkpoint.snapshots.arrangement import DATA_OFFSET, Arrangement, Entry

if TYPE_CHECKING:
    import torch

    from phalanx.train.checkpoint.contents.piece import Piece

MAGIC = b"phalanx2"
HEADER = struct.Struct("<8sQQQQQQ")
SEGMENT_ALIGNMENT = 2 << 20
RECORD_BYTES_SPARE = 1 << 20

EMPTY, WRITING, COMPLETE = range(3)


@dataclass(frozen=True, slots=True)
class Record:
    """What a snapshot holds."""

    step: int
    rank: int
    world_size: int
    entries: Arrangement
    objects: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Header:
    """What stands at the head of a slot."""

    state: int = EMPTY
    step: int = 0
    rank: int = 0
    data_bytes: int = 0
    record_bytes: int = 0
    record_crc: int = 0

    @property
    def total_bytes(self) -> int:
        """The head, the data and the record: what a copy of the slot must hold."""
        return DATA_OFFSET + self.data_bytes + self.record_bytes


def slot_bytes(data_bytes: int, record_bytes: int = 0) -> int:
    """The size of a segment that holds so much data, with room for the record to grow."""
    size = DATA_OFFSET + data_bytes + 2 * record_bytes + RECORD_BYTES_SPARE
    return -(-size // SEGMENT_ALIGNMENT) * SEGMENT_ALIGNMENT


class Slot:
    """A segment seen as a snapshot."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._views: tuple[Arrangement, list[torch.Tensor]] | None = None

    @property
    def name(self) -> str:
        return self.segment.name

    @property
    def header(self) -> Header:
        """The head as it stands; an empty one if the memory is fresh."""
        magic, *fields = HEADER.unpack_from(self.segment.view)
        return Header(*fields) if magic == MAGIC else Header()

    @property
    def complete_step(self) -> int | None:
        """The step of the snapshot that is here in full."""
        header = self.header
        return header.step if header.state == COMPLETE else None

    def clear(self) -> None:
        """Forgets what is here."""
        self._put(Header())

    def begin(self, step: int, rank: int, data_bytes: int) -> None:
        """Says that what is here is being overwritten."""
        self._put(Header(WRITING, step, rank, data_bytes))

    def finish(self, record: Record) -> None:
        """Adds the record and says that all is here."""
        text = pickle.dumps(record, protocol=5)
        header = self.header
        start = DATA_OFFSET + header.data_bytes
        if start + len(text) > self.segment.size:
            raise ValueError(f"a record of {len(text)} bytes does not fit into {self.name}")
        self.segment.view[start : start + len(text)] = text
        self._put(Header(COMPLETE, header.step, header.rank, header.data_bytes, len(text), zlib.crc32(text)))

    def adopt(self, header: Header) -> None:
        """Says that all is here, after the bytes that `header` speaks of were brought from elsewhere."""
        self._put(header)

    def record(self) -> Record:
        """What is here; the snapshot must be complete."""
        header = self.header
        start = DATA_OFFSET + header.data_bytes
        text = self.segment.view[start : start + header.record_bytes]
        if header.state != COMPLETE or zlib.crc32(text) != header.record_crc:
            raise ValueError(f"{self.name} holds no complete snapshot")
        record: Record = pickle.loads(text)
        return record

    def tensor(self, entry: Entry) -> torch.Tensor:
        """The bytes of one piece, where they lie, seen as what they are."""
        stretch = self.segment.bytes[entry.position : entry.position + entry.nbytes]
        return stretch.view(entry.dtype).view(entry.sizes)

    def tensors(self, arrangement: Arrangement) -> list[torch.Tensor]:
        """The bytes of all pieces, where they lie. They are kept for the next snapshot of the same arrangement."""
        if self._views is None or self._views[0] is not arrangement:
            self._views = (arrangement, [self.tensor(entry) for entry in arrangement])
        return self._views[1]

    def close(self) -> None:
        """Lets go of the memory, and of all tensors that look at it."""
        self._views = None
        self.segment.close()

    def pieces(self, record: Record) -> list[Piece]:
        """All pieces, where they lie."""
        from phalanx.train.checkpoint.contents.piece import Piece

        return [
            Piece(e.fqn, e.global_shape, e.offsets, e.sizes, e.dtype, self.tensor(e), e.replica, e.replicas)
            for e in record.entries
        ]

    def _put(self, header: Header) -> None:
        HEADER.pack_into(
            self.segment.view,
            0,
            MAGIC,
            header.state,
            header.step,
            header.rank,
            header.data_bytes,
            header.record_bytes,
            header.record_crc,
        )
